/* stepvan_tensor to tensors of torch or numpy. */
#include "core.h"

#include "names.h"

/* A copy of more bytes is made without the interpreter lock. */
#define LARGE_COPY (256 * 1024)

/*
 * The framework that has a type: as, else numpy (with ml_dtypes where it is installed). If neither has it, writes
 * the code of the unsigned integers of the same size to *code.
 */
static framework *having(framework *as, int *code)
{
	static const uint8_t bits[] = {[1] = STEPVAN_UINT8, [2] = STEPVAN_UINT16, [4] = STEPVAN_UINT32, [8] = STEPVAN_UINT64};
	if (as->dtype[*code] != NULL)
		return as;
	if (numpy.dtype[*code] == NULL && discover(1) < 0)
		return NULL;
	if (numpy.dtype[*code] == NULL)
		*code = bits[dtype_size(*code)];
	if (numpy.dtype[*code] != NULL)
		return &numpy;
	PyErr_Format(PyExc_ImportError, "torch has no %s: install numpy and ml_dtypes", dtype_name(*code));
	return NULL;
}

/* The dtype object for a code. New reference. */
PyObject *dtype_object(framework *as, int code)
{
	as = having(as, &code);
	if (as == NULL)
		return NULL;
	Py_INCREF(as->dtype[code]);
	return as->dtype[code];
}

/* Calls function(argument, **with); steals argument. */
static PyObject *call_with(PyObject *function, PyObject *argument, PyObject *with)
{
	if (argument == NULL)
		return NULL;
	PyObject *args = PyTuple_New(1);
	if (args == NULL || PyTuple_SetItem(args, 0, argument) < 0) {
		Py_XDECREF(args);
		return NULL;
	}
	PyObject *result = PyObject_Call(function, args, with);
	Py_DECREF(args);
	return result;
}

static PyObject *wrap_torch(PyObject *memory, const stepvan_tensor *tensor, int code)
{
	const struct memory *m = (struct memory *)memory;
	if (torch.exchange != NULL && tensor->bytes > 0 && !m->readonly)
		return dlpack_wrap(torch.exchange, memory, m->data, tensor);
	PyObject *shape = shape_of(tensor);
	if (shape == NULL || tensor->bytes == 0)
		return call_with(torch.make, shape, torch.make_with[code]);
	Py_INCREF(memory);
	PyObject *flat = call_with(torch.wrap, memory, torch.wrap_with[code]);
	PyObject *view = flat != NULL ? PyObject_CallMethodObjArgs(flat, name_view, shape, NULL) : NULL;
	Py_XDECREF(flat);
	Py_DECREF(shape);
	return view;
}

/* A tensor in memory, which it holds. New reference. */
PyObject *view_of(framework *as, PyObject *memory, const stepvan_tensor *tensor)
{
	int code = tensor->dtype;
	as = having(as, &code);
	if (as == NULL)
		return NULL;
	if (as == &torch)
		return wrap_torch(memory, tensor, code);
	PyObject *shape = shape_of(tensor);
	if (shape == NULL)
		return NULL;
	PyObject *view = PyObject_CallFunctionObjArgs(numpy.wrap, shape, numpy.dtype[code], memory, NULL);
	Py_DECREF(shape);
	return view;
}

static void copy_bytes(void *to, const stepvan_tensor *tensor)
{
	if (tensor->bytes < LARGE_COPY) {
		memcpy(to, tensor->data, tensor->bytes);
		return;
	}
	Py_BEGIN_ALLOW_THREADS
	memcpy(to, tensor->data, tensor->bytes);
	Py_END_ALLOW_THREADS
}

static PyObject *copy_torch(const stepvan_tensor *tensor, int code)
{
	PyObject *made = call_with(torch.make, shape_of(tensor), torch.make_with[code]);
	if (made == NULL || tensor->bytes == 0)
		return made;
	PyObject *address = PyObject_CallMethodObjArgs(made, name_data_ptr, NULL);
	void *to = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
	Py_XDECREF(address);
	if (to == NULL) {
		Py_DECREF(made);
		return NULL;
	}
	copy_bytes(to, tensor);
	return made;
}

static PyObject *copy_numpy(const stepvan_tensor *tensor)
{
	PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)tensor->bytes);
	if (bytes == NULL)
		return NULL;
	if (tensor->bytes > 0)
		copy_bytes(PyByteArray_AsString(bytes), tensor);
	PyObject *view = view_of(&numpy, bytes, tensor);
	Py_DECREF(bytes);
	return view;
}

/* A tensor with a copy of the bytes. New reference. */
PyObject *copy_of(framework *as, const stepvan_tensor *tensor)
{
	int code = tensor->dtype;
	as = having(as, &code);
	if (as == NULL)
		return NULL;
	return as == &torch ? copy_torch(tensor, code) : copy_numpy(tensor);
}

/* view(memory, shape, code, whether as torch) -> tensor in the memory */
PyObject *view(PyObject *self, arguments args, Py_ssize_t count)
{
	stepvan_tensor tensor;
	uint64_t code;
	operand as = {"shape", -1, 0};
	if (expect(count, 4, 4, "view") < 0 || to_u64(args[2], &code, "dtype") < 0 || set_shape(&tensor, args[1], &as) < 0)
		return NULL;
	tensor.dtype = (uint8_t)code;
	if (set_bytes(&tensor, &as) < 0)
		return NULL;
	return view_of(args[3] == Py_True ? &torch : &numpy, args[0], &tensor);
}
