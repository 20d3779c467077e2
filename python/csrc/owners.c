/*
 * Objects that the library's operations keep alive. An operation is given the address of
 * an object, a tuple as a rule, with a reference; when the library has let go of the memory it
 * says so in stepvan_released, and the reference is given back here, at one of the next calls.
 */
#include "core.h"

/* A tuple of count places for what keeps the tensors of one operation. New reference. */
PyObject *owners_of(Py_ssize_t count)
{
	return PyTuple_New(count);
}

/* Gives back what the library has released. Objects may go here, and run what they run then. */
void collect_released(void)
{
	uint64_t released[64];
	uint64_t n;
	do {
		n = stepvan_released(released, COUNT(released));
		for (uint64_t i = 0; i < n; i++)
			Py_DECREF((PyObject *)(uintptr_t)released[i]);
	} while (n == COUNT(released));
}

/* collect() */
PyObject *collect(PyObject *self, PyObject *unused)
{
	collect_released();
	Py_RETURN_NONE;
}
