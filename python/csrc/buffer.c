/* Objects with the buffer protocol: bytearray, memoryview, array.array. */
#include "core.h"

static int describe(const Py_buffer *view, const operand *as, stepvan_tensor *tensor)
{
	int code = dtype_of_format(view->format, view->itemsize);
	if (code == 0)
		return refuse(as, "elements of format '%s' cannot be moved", view->format != NULL ? view->format : "");
	if (view->ndim > STEPVAN_MAX_RANK)
		return refuse(as, "it has %d dimensions (want at most %d)", view->ndim, STEPVAN_MAX_RANK);
	tensor->dtype = (uint8_t)code;
	tensor->rank = (uint8_t)view->ndim;
	for (int i = 0; i < view->ndim; i++)
		tensor->shape[i] = view->shape[i];
	tensor->data = view->buf;
	if (set_bytes(tensor, as) < 0)
		return -1;
	for (int i = 0; as->strides != NULL && i < view->ndim; i++) {
		if (set_stride(as, tensor, i, view->strides[i], 1) < 0)
			return -1;
	}
	return 0;
}

/* A memoryview holds the memory: while it exists, a bytearray cannot be resized. */
int tensor_of_buffer(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	int flags = (as->strides != NULL ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS) | PyBUF_FORMAT;
	Py_buffer view;
	if (PyObject_GetBuffer(object, &view, flags) < 0)
		return refuse(as, PyErr_ExceptionMatches(PyExc_BufferError) ? "it is not contiguous" : "its memory cannot be reached");
	int failed = as->write && view.readonly ? refuse(as, "it is read-only, and would be written to") : describe(&view, as, tensor);
	PyBuffer_Release(&view);
	if (failed < 0)
		return -1;
	*holder = PyMemoryView_FromObject(object);
	return *holder == NULL ? -1 : 0;
}
