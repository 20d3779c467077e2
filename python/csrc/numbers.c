/* Numbers of Python as those of C. */
#include "core.h"

#include <math.h>

/* Whether the exception, if any, says that an argument is wrong: then it is cleared, for one that says which. Others,
 * like KeyboardInterrupt, are the program's. */
static int is_wrong(void)
{
	if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
	    !PyErr_ExceptionMatches(PyExc_OverflowError))
		return 0;
	PyErr_Clear();
	return 1;
}

/* An unsigned number of 64 bits: a key, a number of the library. Anything with __index__. */
int to_u64(PyObject *object, uint64_t *number, const char *what)
{
	PyObject *index = NULL;
	if (!PyLong_Check(object)) {
		index = PyNumber_Index(object);
		if (index == NULL) {
			if (is_wrong())
				raise_invalid("%s is %R: it must be an integer", what, object);
			return -1;
		}
		object = index;
	}
	*number = PyLong_AsUnsignedLongLong(object);
	if (*number == UINT64_MAX && PyErr_Occurred()) {
		PyErr_Clear();
		raise_invalid("%s is %R: it must be from 0 to 2**64-1", what, object);
		Py_XDECREF(index);
		return -1;
	}
	Py_XDECREF(index);
	return 0;
}

/* A signed number of 64 bits. */
int to_i64(PyObject *object, int64_t *number, const char *what)
{
	PyObject *index = PyNumber_Index(object);
	if (index != NULL)
		*number = PyLong_AsLongLong(index);
	Py_XDECREF(index);
	if (index == NULL || (*number == -1 && PyErr_Occurred())) {
		if (is_wrong())
			raise_invalid("%s is %R: it must be an integer of 64 bits", what, object);
		return -1;
	}
	return 0;
}

/* A limit of time: seconds, or None for ever, which is -1. */
int to_limit(PyObject *seconds, int64_t *nanoseconds)
{
	if (seconds == Py_None) {
		*nanoseconds = -1;
		return 0;
	}
	double s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred())
		return -1;
	if (isnan(s) || s < 0) {
		raise_invalid("timeout is %R: it must be seconds from 0 on, or None for ever", seconds);
		return -1;
	}
	*nanoseconds = s > 9e9 ? -1 : (int64_t)ceil(s * 1e9);
	return 0;
}

/* A tuple with the items of a list, tuple or other iterable. New reference. */
PyObject *to_tuple(PyObject *object, const char *what)
{
	if (PyTuple_Check(object)) {
		Py_INCREF(object);
		return object;
	}
	if (PyList_Check(object))
		return PyList_AsTuple(object);
	PyObject *tuple = PyUnicode_Check(object) || PyBytes_Check(object) ? NULL : PySequence_Tuple(object);
	if (tuple == NULL && is_wrong())
		raise_invalid("%s is %R: it must be a list", what, object);
	return tuple;
}

/* An array of numbers, for PyMem_Free. It has room for one even when it is empty. */
uint64_t *to_numbers(PyObject *object, Py_ssize_t *count, const char *what)
{
	PyObject *tuple = to_tuple(object, what);
	if (tuple == NULL)
		return NULL;
	*count = PyTuple_Size(tuple);
	uint64_t *numbers = PyMem_Malloc((size_t)(*count + 1) * sizeof(uint64_t));
	if (numbers == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; numbers != NULL && i < *count; i++) {
		if (to_u64(PyTuple_GetItem(tuple, i), &numbers[i], what) < 0) {
			PyMem_Free(numbers);
			numbers = NULL;
		}
	}
	Py_DECREF(tuple);
	return numbers;
}

/* Checks how many arguments a function was called with. */
int expect(Py_ssize_t have, Py_ssize_t least, Py_ssize_t most, const char *function)
{
	if (have >= least && have <= most)
		return 0;
	PyErr_Format(PyExc_TypeError, "_core.%s takes %zd to %zd arguments, not %zd", function, least, most, have);
	return -1;
}
