/* Python's tensors to stepvan_tensor. */
#include "core.h"

#include <stdarg.h>

#include "names.h"

/*
 * Whether an exception reports a wrong tensor: torch also raises RuntimeError. Others, like KeyboardInterrupt,
 * pass to the program.
 */
static int is_reason(void)
{
	return is_argument_error() || PyErr_ExceptionMatches(PyExc_AttributeError) ||
	       (PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_RecursionError));
}

/*
 * Sets the exception for a wrong operand: "push[0]: it is not contiguous". If an exception is set, it is the
 * reason and becomes part of the text; an exception of the program stays. Returns -1.
 */
int refuse(const operand *as, const char *format, ...)
{
	if (PyErr_Occurred() != NULL && !is_reason())
		return -1;
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	va_list list;
	va_start(list, format);
	PyObject *text = PyUnicode_FromFormatV(format, list);
	va_end(list);
	if (text != NULL) {
		const char *because = value != NULL ? ": " : "";
		PyObject *reason = value != NULL ? PyObject_Str(value) : PyUnicode_FromString("");
		if (reason == NULL)
			PyErr_Clear();
		else if (as->index >= 0)
			raise_invalid("%s[%zd]: %U%s%U", as->list, as->index, text, because, reason);
		else
			raise_invalid("%s: %U%s%U", as->list, text, because, reason);
		Py_XDECREF(reason);
		Py_DECREF(text);
	}
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
	return -1;
}

/* refuse with the quoted object for the %U of format. */
int refuse_for(const operand *as, const char *format, PyObject *object, int plain)
{
	PyObject *text = quoted(object, plain);
	if (text != NULL)
		refuse(as, format, text);
	Py_XDECREF(text);
	return -1;
}

/* Sets rank and shape from a tuple of numbers. */
int set_shape(stepvan_tensor *tensor, PyObject *shape, const operand *as)
{
	Py_ssize_t rank = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
	if (rank < 0 || rank > STEPVAN_MAX_RANK)
		return refuse(as, "it has %zd dimensions (want at most %d)", rank, STEPVAN_MAX_RANK);
	tensor->rank = (uint8_t)rank;
	for (Py_ssize_t i = 0; i < rank; i++) {
		tensor->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
		if (tensor->shape[i] < 0)
			return refuse_for(as, "its shape %U is not one of numbers", shape, 0);
	}
	return 0;
}

/* Sets bytes from dtype and shape. Returns 0 when there are too many. */
int count_bytes(stepvan_tensor *tensor)
{
	tensor->bytes = dtype_size(tensor->dtype);
	for (int i = 0; i < tensor->rank; i++) {
		if (__builtin_mul_overflow(tensor->bytes, (uint64_t)tensor->shape[i], &tensor->bytes) || tensor->bytes > INT64_MAX)
			return 0;
	}
	return 1;
}

/* As count_bytes, with an exception. */
int set_bytes(stepvan_tensor *tensor, const operand *as)
{
	return count_bytes(tensor) ? 0 : refuse(as, "it is larger than any memory");
}

/*
 * Sets a stride, which counts units of `unit` bytes. The tensor has its shape and bytes. A stride over nothing is set
 * to 1, whatever it says.
 */
int set_stride(const operand *as, const stepvan_tensor *tensor, int dimension, int64_t stride, uint64_t unit)
{
	int64_t size = (int64_t)(dtype_size(tensor->dtype) / unit);
	if (tensor->bytes == 0 || tensor->shape[dimension] == 1) {
		as->strides[dimension] = 1;
		return 0;
	}
	if (stride < 0)
		return refuse(as, "dimension %d runs backwards, with the stride %lld: make a copy, as numpy.ascontiguousarray() does", dimension, (long long)stride);
	if (stride % size != 0)
		return refuse(as, "the stride of dimension %d is no multiple of an element (got %lld bytes, want a multiple of %lld): make a copy", dimension, (long long)stride, (long long)size);
	as->strides[dimension] = stride / size;
	return 0;
}

/* Sets the strides of a tuple: see set_stride. */
int set_strides(const operand *as, const stepvan_tensor *tensor, PyObject *strides, uint64_t unit)
{
	if (!PyTuple_Check(strides) || PyTuple_Size(strides) != tensor->rank)
		return refuse_for(as, "its strides %U do not fit its shape", strides, 0);
	for (int i = 0; i < tensor->rank; i++) {
		long long stride = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
		if (stride == -1 && PyErr_Occurred() != NULL)
			return refuse_for(as, "its strides %U are not numbers", strides, 0);
		if (set_stride(as, tensor, i, stride, unit) < 0)
			return -1;
	}
	return 0;
}

/* Whether a tensor with these strides, in elements, is contiguous. */
int is_packed(const stepvan_tensor *tensor, const int64_t *strides)
{
	int64_t step = 1;
	for (int i = tensor->rank - 1; i >= 0; i--) {
		if (tensor->shape[i] == 0)
			return 1;
		if (tensor->shape[i] != 1 && strides[i] != step)
			return 0;
		step *= tensor->shape[i];
	}
	return 1;
}

/* How many bytes a view takes from its first to its last element. UINT64_MAX stands for more than any memory. */
static uint64_t span_of(const stepvan_tensor *tensor, const int64_t *strides)
{
	uint64_t span = 1, steps;
	if (tensor->bytes == 0)
		return 0;
	for (int i = 0; i < tensor->rank; i++) {
		if (__builtin_mul_overflow((uint64_t)tensor->shape[i] - 1, (uint64_t)strides[i], &steps) || __builtin_add_overflow(span, steps, &span))
			return UINT64_MAX;
	}
	return __builtin_mul_overflow(span, dtype_size(tensor->dtype), &span) ? UINT64_MAX : span;
}

/* The shape as a tuple. New reference. */
PyObject *shape_of(const stepvan_tensor *tensor)
{
	PyObject *shape = PyTuple_New(tensor->rank);
	for (int i = 0; shape != NULL && i < tensor->rank; i++) {
		PyObject *n = PyLong_FromLongLong(tensor->shape[i]);
		if (n == NULL || PyTuple_SetItem(shape, i, n) < 0)
			Py_CLEAR(shape);
	}
	return shape;
}

/* Refuses to write to a tensor of torch that autograd watches: autograd would miss the write. */
static int check_watched(PyObject *object, const operand *as)
{
	PyObject *value = PyObject_GetAttr(object, name_requires_grad);
	if (value == NULL)
		return refuse(as, "it has no requires_grad");
	Py_DECREF(value);
	return value == Py_True ? refuse(as, "it requires grad, and autograd would miss the write: use .detach()") : 0;
}

static int of_torch(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	return as->write && check_watched(object, as) < 0 ? -1 : tensor_of_torch(object, as, tensor, holder);
}

/* Converts an object of an unknown type, by the protocols that it supports. */
static int tensor_of_other(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	if (discover(0) < 0)
		return -1;
	if (torch.type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)torch.type))
		return of_torch(object, as, tensor, holder);
	if (numpy.type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)numpy.type))
		return tensor_of_numpy(object, as, tensor, holder);
	PyObject *method = PyObject_GetAttr(object, name___dlpack__);
	if (method != NULL) {
		int failed = tensor_of_dlpack(object, method, as, tensor, holder);
		Py_DECREF(method);
		return failed;
	}
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	PyErr_Clear();
	if (PyObject_CheckBuffer(object))
		return tensor_of_buffer(object, as, tensor, holder);
	return refuse_for(as, "%U is not a tensor: give one of torch or numpy, or an object with __dlpack__ or the buffer protocol", object, 0);
}

/*
 * Converts a tensor. *holder gets a new reference to the object that holds its memory. An operation need not hold
 * that when tensor->memory is not 0. Budget: 300 ns for a tensor of torch.
 */
int tensor_of(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	*holder = NULL;
	tensor->flags = 0;
	tensor->device_kind = tensor->device = 0;
	int failed;
	if (torch.type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)torch.type))
		failed = of_torch(object, as, tensor, holder);
	else if (numpy.type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)numpy.type))
		failed = tensor_of_numpy(object, as, tensor, holder);
	else
		failed = tensor_of_other(object, as, tensor, holder);
	if (failed < 0) {
		Py_CLEAR(*holder);
		return -1;
	}
	uint64_t bytes = as->strides != NULL ? span_of(tensor, as->strides) : tensor->bytes;
	tensor->memory = tensor->device_kind == 0 ? memory_number(tensor->data, bytes) : 0;
	return 0;
}

/*
 * Converts a tensor that need not be contiguous. as->strides must be view->strides. *holder is as in tensor_of. Budget:
 * 350 ns for a tensor of torch.
 */
int strided_of(PyObject *object, const operand *as, stepvan_view *view, PyObject **holder)
{
	stepvan_tensor tensor;
	if (tensor_of(object, as, &tensor, holder) < 0)
		return -1;
	view->data = tensor.data;
	view->memory = tensor.memory;
	view->dtype = tensor.dtype;
	view->rank = tensor.rank;
	view->flags = 0;
	view->device_kind = tensor.device_kind;
	view->device = tensor.device;
	memcpy(view->shape, tensor.shape, tensor.rank * sizeof(int64_t));
	if (tensor.memory == 0 && storages_wanted > 0) {
		tensor.bytes = span_of(&tensor, view->strides);
		view->memory = storage_number(object, &tensor);
	}
	return 0;
}

/* Item i of a list or tuple, which may have become shorter. New reference. */
static PyObject *item_of(PyObject *objects, Py_ssize_t i)
{
	PyObject *item = PyList_Check(objects) ? PyList_GetItem(objects, i) : PyTuple_GetItem(objects, i);
	Py_XINCREF(item);
	return item;
}

static int add(tensors *list, PyObject *object, const operand *as, references *kept)
{
	stepvan_tensor *tensor = &list->at[list->count];
	PyObject *holder;
	if (tensor_of(object, as, tensor, &holder) < 0)
		return -1;
	if (tensor->memory == 0) {
		if (storages_wanted > 0)
			tensor->memory = storage_number(object, tensor);
		return references_add(kept, holder);
	}
	Py_DECREF(holder);
	return 0;
}

static int add_all(tensors *list, PyObject *objects, Py_ssize_t n, const char *name, int write, references *kept)
{
	if (n > FEW && (list->at = PyMem_Malloc((size_t)n * sizeof(stepvan_tensor))) == NULL) {
		list->at = list->few;
		PyErr_NoMemory();
		return -1;
	}
	for (; list->count < n; list->count++) {
		operand as = {name, list->count, write};
		PyObject *object = item_of(objects, list->count);
		int failed = object == NULL ? -1 : add(list, object, &as, kept);
		Py_XDECREF(object);
		if (failed < 0)
			return -1;
	}
	return 0;
}

/* Converts a list, and adds the holders of its memory to kept. tensors_done must follow in any case. */
int tensors_of(tensors *list, PyObject *objects, const char *name, int write, references *kept)
{
	list->at = list->few;
	list->count = 0;
	if (PyList_Check(objects))
		return add_all(list, objects, PyList_Size(objects), name, write, kept);
	PyObject *type = (PyObject *)Py_TYPE(objects);
	if (type == torch.type || type == numpy.type) {
		raise_invalid("%s is a tensor: it must be a list of tensors", name);
		return -1;
	}
	PyObject *tuple = to_tuple(objects, name);
	if (tuple == NULL)
		return -1;
	int failed = add_all(list, tuple, PyTuple_Size(tuple), name, write, kept);
	Py_DECREF(tuple);
	return failed;
}

/* Frees the array. */
void tensors_done(tensors *list)
{
	if (list->at != list->few)
		PyMem_Free(list->at);
}
