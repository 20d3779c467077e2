/*
 * Objects that the library's operations keep alive. The owner of an operation is the address of a tuple, with a
 * reference. When the library has released the memory, stepvan_released returns the address. One of the next calls
 * here then drops the reference.
 */
#include "core.h"

/* Starts an empty list of objects that an operation keeps alive. references_done must follow. */
void references_begin(references *k)
{
	k->at = k->few;
	k->count = 0;
	k->capacity = COUNT(k->few);
}

static int grow(references *k)
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
int references_add(references *k, PyObject *object)
{
	if (k->count == k->capacity && grow(k) < 0) {
		Py_DECREF(object);
		return -1;
	}
	k->at[k->count++] = object;
	return 0;
}

/*
 * The owner of an operation: a tuple of all added objects; NULL without an exception for an empty list. New
 * reference.
 */
PyObject *references_owner(references *k)
{
	PyObject *owner = k->count > 0 ? PyTuple_New(k->count) : NULL;
	for (Py_ssize_t i = 0; owner != NULL && i < k->count; i++)
		PyTuple_SetItem(owner, i, k->at[i]);
	if (owner != NULL)
		k->count = 0;
	return owner;
}

/* The owner of an operation with one object, whose reference it steals, also when it fails. New reference. */
PyObject *owner_of(PyObject *holder)
{
	PyObject *owner = PyTuple_Pack(1, holder);
	Py_DECREF(holder);
	return owner;
}

/* Drops the references that no owner has taken. */
void references_done(references *k)
{
	for (Py_ssize_t i = 0; i < k->count; i++)
		Py_DECREF(k->at[i]);
	if (k->at != k->few)
		PyMem_Free(k->at);
}

/*
 * Replaces torch tensors in an owner by their storages: the program may give a tensor another storage. The caller
 * does this after the operation has begun, which so need not wait for it. The interpreter lock was held since the
 * tensors were read.
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

/* Drops the references that the library has released. That may deallocate objects, whose code then runs. */
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
