/*
 * Tensors of torch. Its functions in C read them where torch has these (dlpack.c), else their Python attributes.
 * The attributes also tell why an exchange cannot move a tensor. No version of torch is linked.
 */
#include "core.h"

#include "names.h"

/* Whether an attribute is true; -1 with an exception. */
static int truth(PyObject *object, PyObject *name)
{
	PyObject *value = PyObject_GetAttr(object, name);
	if (value == NULL)
		return -1;
	int is = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
	Py_DECREF(value);
	return is;
}

/* Whether a method without arguments returns true; -1 with an exception. */
static int says(PyObject *object, PyObject *name)
{
	PyObject *value = PyObject_CallMethodObjArgs(object, name, NULL);
	if (value == NULL)
		return -1;
	int is = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
	Py_DECREF(value);
	return is;
}

static int wrong_device(PyObject *object, const operand *as)
{
	PyErr_Clear();
	PyObject *device = PyObject_GetAttr(object, name_device);
	if (device == NULL)
		return refuse(as, "its device cannot be read");
	refuse_for(as, "it is on device %U; this build moves tensors in the memory of the CPU: use .cpu()", device, 1);
	Py_DECREF(device);
	return -1;
}

/* Whether a tensor has other values than its memory: lazily conjugated or negated. */
static int check_lazy(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	int complex = tensor->dtype >= STEPVAN_COMPLEX32 && tensor->dtype <= STEPVAN_COMPLEX128;
	int lazy = complex ? says(object, name_is_conj) : 0;
	if (lazy == 0)
		lazy = says(object, name_is_neg);
	if (lazy < 0) { /* a version without lazy tensors */
		PyErr_Clear();
		return 0;
	}
	return lazy ? refuse(as, "it is conjugated or negated lazily: use .resolve_conj() and .resolve_neg()") : 0;
}

static int set_dtype(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *dtype = PyObject_GetAttr(object, name_dtype);
	if (dtype == NULL)
		return refuse(as, "it has no dtype");
	int code = dtype_code(dtype);
	tensor->dtype = (uint8_t)code;
	if (code == 0)
		refuse_for(as, "elements of type %U cannot be moved; .view() it as an integer type of the same size", dtype, 1);
	Py_DECREF(dtype);
	return code == 0 ? -1 : 0;
}

static int set_data(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *address = PyObject_CallMethodObjArgs(object, name_data_ptr, NULL);
	if (address == NULL)
		return refuse(as, "its memory cannot be reached");
	tensor->data = PyLong_AsVoidPtr(address);
	Py_DECREF(address);
	if (tensor->data == NULL && (PyErr_Occurred() != NULL || tensor->bytes > 0))
		return refuse(as, "it has no memory");
	return 0;
}

/* The storage of a tensor of torch: it holds the memory, and the tensor may get another one. New reference. */
PyObject *storage_of(PyObject *object)
{
	if (torch.storage != NULL) {
		PyObject *storage = PyObject_CallMethodObjArgs(object, torch.storage, NULL);
		if (storage != NULL)
			return storage;
		PyErr_Clear();
	}
	Py_INCREF(object);
	return object;
}

/* All bytes of a storage as a tensor. New reference. */
static PyObject *bytes_of(PyObject *storage)
{
	PyObject *none = Py_BuildValue("(i)", 0);
	PyObject *bytes = none != NULL ? PyObject_Call(torch.make, none, torch.make_with[STEPVAN_UINT8]) : NULL;
	PyObject *set = bytes != NULL ? PyObject_CallMethodObjArgs(bytes, name_set_, storage, NULL) : NULL;
	Py_XDECREF(none);
	Py_XDECREF(bytes);
	return set;
}

/* Whether torch reports that a storage cannot be resized anyway. Torch before 2.1 does not report it. */
static int is_fixed(PyObject *storage)
{
	PyObject *resizable = PyObject_CallMethodObjArgs(storage, name_resizable, NULL);
	if (resizable == NULL)
		PyErr_Clear();
	Py_XDECREF(resizable);
	return resizable == Py_False;
}

/* The result of fix_storage with an exception set: 0 if the storage cannot be resized anyway. */
static int cannot_fix(PyObject *storage)
{
	if (!PyErr_ExceptionMatches(PyExc_Exception)) /* an interrupt passes to the program */
		return -1;
	PyObject *type, *why, *traceback;
	PyErr_Fetch(&type, &why, &traceback);
	int fixed = is_fixed(storage);
	if (!fixed)
		raise_not_supported("register: tensor: torch could resize it, which frees its memory: only a numpy that works with torch prevents "
		                    "that (%S): install another numpy (for torch before 2.3: 'numpy<2'), or use a tensor of node.empty", why != NULL ? why : type);
	Py_XDECREF(type);
	Py_XDECREF(why);
	Py_XDECREF(traceback);
	return fixed ? 0 : -1;
}

/*
 * Makes torch refuse to resize the storage of a tensor, which would free registered memory. Torch refuses that for
 * good once numpy has a view of the storage. The view is of bytes, as numpy lacks some types. Where torch does not
 * work with the installed numpy, a tensor whose storage can be resized is refused. Budget: 5 us.
 */
int fix_storage(PyObject *object)
{
	PyObject *storage = storage_of(object);
	PyObject *bytes = storage != object ? bytes_of(storage) : NULL;
	PyObject *array = bytes != NULL ? PyObject_CallMethodObjArgs(bytes, name_numpy, NULL) : NULL;
	Py_XDECREF(array);
	Py_XDECREF(bytes);
	int failed = PyErr_Occurred() == NULL ? 0 : cannot_fix(storage);
	Py_DECREF(storage);
	return failed;
}

/* Sparse tensors of torch 2 are not contiguous either, which .contiguous() does not change. */
static int not_contiguous(PyObject *object, const operand *as)
{
	PyObject *layout = PyObject_GetAttr(object, name_layout);
	PyObject *text = layout != NULL ? PyObject_Str(layout) : NULL;
	Py_XDECREF(layout);
	if (text == NULL)
		return refuse(as, "its layout cannot be read");
	int strided = PyUnicode_CompareWithASCIIString(text, "torch.strided") == 0;
	Py_DECREF(text);
	return refuse(as, strided ? "it is not contiguous: use .contiguous()" : "it is not dense: use .to_dense()");
}

/*
 * One element is contiguous whatever its strides are. Before torch 2 sparse tensors raise, here or for their
 * memory.
 */
static int check_contiguous(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	if (tensor->bytes == dtype_size(tensor->dtype))
		return 0;
	int contiguous = says(object, name_is_contiguous);
	if (contiguous < 0)
		return refuse(as, "it is not dense");
	return contiguous ? 0 : not_contiguous(object, as);
}

static int set_shape_of(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *shape = PyObject_GetAttr(object, name_shape);
	if (shape == NULL)
		return refuse(as, "it has no shape");
	int failed = set_shape(tensor, shape, as);
	Py_DECREF(shape);
	return failed;
}

/* Reads a tensor by its attributes. */
static int look(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	if (truth(object, name_is_cpu) != 1)
		return wrong_device(object, as);
	if (set_shape_of(object, as, tensor) < 0 || set_dtype(object, as, tensor) < 0 || set_bytes(tensor, as) < 0 || check_contiguous(object, as, tensor) < 0)
		return -1;
	return set_data(object, as, tensor);
}

/* *holder gets the tensor itself: see owner_settle. */
int tensor_of_torch(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	/* Tensors of other classes may define their attributes themselves. */
	int plain = torch.exchange != NULL && (PyObject *)Py_TYPE(object) == torch.type;
	if ((!plain || !dlpack_look(torch.exchange, object, tensor)) && look(object, as, tensor) < 0)
		return -1;
	/* Only views of parts of complex numbers are negated; with more than one element they are not contiguous. */
	if ((tensor->bytes <= dtype_size(tensor->dtype) || tensor->dtype >= STEPVAN_COMPLEX32) && tensor->dtype >= STEPVAN_FLOAT16 && check_lazy(object, as, tensor) < 0)
		return -1;
	Py_INCREF(object);
	*holder = object;
	return 0;
}
