/*
 * Objects that the library's operations keep alive. An operation is given the address of
 * a tuple, with a reference; when the library has let go of the memory it says so in
 * stepvan_released, and the reference is given back here, at one of the next calls.
 */
#include "core.h"

/* An empty list of what an operation keeps. keepers_done follows. */
void keepers_begin(keepers *k)
{
	k->at = k->few;
	k->count = 0;
	k->capacity = COUNT(k->few);
}

static int grow(keepers *k)
{
	Py_ssize_t capacity = k->capacity * 4;
	PyObject **at = PyMem_Malloc((size_t)capacity * sizeof(PyObject *));
	if (at == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	memcpy(at, k->at, (size_t)k->count * sizeof(PyObject *));
	if (k->at != k->few)
		PyMem_Free(k->at);
	k->at = at;
	k->capacity = capacity;
	return 0;
}

/* Adds an object. Steals the reference, also when it fails. */
int keepers_add(keepers *k, PyObject *object)
{
	if (k->count == k->capacity && grow(k) < 0) {
		Py_DECREF(object);
		return -1;
	}
	k->at[k->count++] = object;
	return 0;
}

/* The tuple that an operation holds, with all that was added; NULL without an exception when that is nothing. New reference. */
PyObject *keepers_owner(keepers *k)
{
	PyObject *owner = k->count > 0 ? PyTuple_New(k->count) : NULL;
	for (Py_ssize_t i = 0; owner != NULL && i < k->count; i++)
		PyTuple_SetItem(owner, i, k->at[i]);
	if (owner != NULL)
		k->count = 0;
	return owner;
}

/* The tuple that an operation holds, of one object, whose reference it steals, also when it fails. New reference. */
PyObject *owner_of(PyObject *keep)
{
	PyObject *owner = PyTuple_Pack(1, keep);
	Py_DECREF(keep);
	return owner;
}

/* Gives back what no owner has taken. */
void keepers_done(keepers *k)
{
	for (Py_ssize_t i = 0; i < k->count; i++)
		Py_DECREF(k->at[i]);
	if (k->at != k->few)
		PyMem_Free(k->at);
}

/*
 * Has an owner keep the storages of torch tensors in place of the tensors, which the program may give other storages. After
 * the operation has begun, so that it need not wait for this; the interpreter lock was held since the tensors were looked at.
 */
void owner_settle(PyObject *owner)
{
	if (owner == NULL || torch.type == NULL)
		return;
	for (Py_ssize_t i = 0, n = PyTuple_Size(owner); i < n; i++) {
		PyObject *item = PyTuple_GetItem(owner, i);
		if (PyObject_TypeCheck(item, (PyTypeObject *)torch.type))
			PyTuple_SetItem(owner, i, storage_of(item));
	}
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
