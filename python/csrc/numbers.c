/* Python's numbers to C's. */
#include "core.h"

#include <math.h>

/* Whether the exception that is set reports a wrong argument. Others, like KeyboardInterrupt, pass to the program. */
int is_argument_error(void)
{
	return PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
	       PyErr_ExceptionMatches(PyExc_OverflowError) || PyErr_ExceptionMatches(PyExc_BufferError);
}

/* Whether such an exception is set. It is then cleared, and the caller sets one that names the argument. */
int is_wrong(void)
{
	if (PyErr_Occurred() != NULL && !is_argument_error())
		return 0;
	PyErr_Clear();
	return 1;
}

/* An unsigned number of 64 bits, such as a key, from any object with __index__. */
int to_u64(PyObject *object, uint64_t *number, const char *what)
{
	return to_u64_at(object, number, what, -1);
}

/* Sets the exception for a wrong argument or, with index, a wrong item of a list. Returns -1. */
int must_be(PyObject *object, const char *what, Py_ssize_t index, const char *must)
{
	PyObject *text = quoted(object, 0);
	if (text == NULL)
		return -1;
	if (index < 0)
		raise_invalid("%s is %U: it must be %s", what, text, must);
	else
		raise_invalid("%s[%zd] is %U: it must be %s", what, index, text, must);
	Py_DECREF(text);
	return -1;
}

/* As to_u64, for item index of a list. */
int to_u64_at(PyObject *object, uint64_t *number, const char *what, Py_ssize_t index)
{
	PyObject *integer = NULL;
	if (!PyLong_Check(object)) {
		integer = PyNumber_Index(object);
		if (integer == NULL)
			return is_wrong() ? must_be(object, what, index, "an integer") : -1;
		object = integer;
	}
	*number = PyLong_AsUnsignedLongLong(object);
	int failed = 0;
	if (*number == UINT64_MAX && PyErr_Occurred()) {
		PyErr_Clear();
		failed = must_be(object, what, index, "from 0 to 2**64-1");
	}
	Py_XDECREF(integer);
	return failed;
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
			must_be(object, what, -1, "an integer of 64 bits");
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
	if (s == -1.0 && PyErr_Occurred() && !is_wrong())
		return -1;
	if (isnan(s) || s < 0)
		return must_be(seconds, "timeout", -1, "seconds from 0 on, or None for ever");
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
		must_be(object, what, -1, "a list");
	return tuple;
}

/* The text of a string, which owns it. NULL without an exception when it is not a string, or C cannot hold it. */
const char *to_text(PyObject *object)
{
	Py_ssize_t size;
	const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : NULL;
	if (text == NULL) {
		is_wrong(); /* lone surrogates */
		return NULL;
	}
	return strlen(text) == (size_t)size ? text : NULL;
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
		if (to_u64_at(PyTuple_GetItem(tuple, i), &numbers[i], what, i) < 0) {
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
