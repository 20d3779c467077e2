/*
 * Memory: an object with the buffer protocol, from which numpy and torch make tensors. The tensors hold it, and it
 * holds the owner of the bytes. So memory that a program can still reach is never freed.
 */
#include "core.h"

static PyTypeObject *type;
static ranges allocated; /* Memory objects of stepvan_alloc, by address */

/* Pooled bytes of the library that Memory objects of memory_of_pool hold, an upper bound. */
uint64_t pooled_bytes_held;

/* New reference. Steals number, also when it fails; takes a reference to holder, which may be NULL. */
PyObject *memory_new(void *data, uint64_t bytes, uint64_t number, int readonly, PyObject *holder)
{
	memory *m = PyObject_New(memory, type);
	if (m == NULL) {
		if (number != 0)
			stepvan_free(number, NULL);
		return NULL;
	}
	m->data = data;
	m->bytes = bytes;
	m->number = number;
	m->charge = 0;
	m->allocated = m->own_file = 0;
	m->readonly = readonly;
	Py_XINCREF(holder);
	m->holder = holder;
	return (PyObject *)m;
}

/* Pooled memory: number holds charge bytes of the pool. New reference. Steals number, also when it fails. */
PyObject *memory_of_pool(void *data, uint64_t bytes, uint64_t number, uint64_t charge)
{
	PyObject *m = memory_new(data, bytes, number, 0, NULL);
	if (m != NULL) {
		((memory *)m)->charge = charge;
		pooled_bytes_held += charge;
	}
	return m;
}

static void memory_dealloc(PyObject *self)
{
	memory *m = (memory *)self;
	pooled_bytes_held -= m->charge;
	if (m->allocated)
		ranges_remove(&allocated, m->data, self);
	if (m->number != 0)
		stepvan_free(m->number, NULL);
	Py_XDECREF(m->holder);
	PyTypeObject *of = Py_TYPE(self);
	PyObject_Free(self);
	Py_DECREF(of);
}

static int memory_buffer(PyObject *self, Py_buffer *view, int flags)
{
	memory *m = (memory *)self;
	return PyBuffer_FillInfo(view, self, m->data, (Py_ssize_t)m->bytes, m->readonly, flags);
}

/* The number of the shared memory that the bytes are in, or 0. */
uint64_t memory_number(const void *data, uint64_t bytes)
{
	PyObject *found = ranges_find(&allocated, data, bytes);
	return found != NULL ? ((memory *)found)->number : 0;
}

/* in_own_file(address, bytes) -> whether they lie in memory that allocate has put into a file of its own */
PyObject *in_own_file(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t address, bytes;
	if (expect(count, 2, 2, "in_own_file") < 0 || to_u64(args[0], &address, "address") < 0 || to_u64(args[1], &bytes, "bytes") < 0)
		return NULL;
	PyObject *found = ranges_find(&allocated, (void *)(uintptr_t)address, bytes);
	return PyBool_FromLong(found != NULL && ((memory *)found)->own_file);
}

/* allocate(node, bytes, zeroed, whether in a file of its own) -> Memory */
PyObject *allocate(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, bytes, number;
	stepvan_error error;
	void *data;
	if (expect(count, 4, 4, "allocate") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &bytes, "bytes") < 0)
		return NULL;
	int zeroed = PyObject_IsTrue(args[2]), own_file = PyObject_IsTrue(args[3]);
	if (zeroed < 0 || own_file < 0)
		return NULL;
	collect_released();
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_alloc(node, bytes, (zeroed ? STEPVAN_ZEROED : 0) | (own_file ? STEPVAN_OWN_FILE : 0), &data, &number, &error);
	Py_END_ALLOW_THREADS
	if (check(code, &error) < 0)
		return NULL;
	PyObject *m = memory_new(data, bytes, number, 0, NULL);
	if (m != NULL && ranges_add(&allocated, data, bytes, m) < 0) {
		Py_DECREF(m);
		return NULL;
	}
	if (m != NULL) {
		((memory *)m)->allocated = 1;
		((memory *)m)->own_file = own_file;
	}
	return m;
}

static PyType_Slot slots[] = {
	{Py_tp_dealloc, memory_dealloc},
	{Py_bf_getbuffer, memory_buffer},
	{Py_tp_doc, "Memory that lives as long as something shows it. It has the buffer protocol."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "stepvan._core.Memory",
	.basicsize = sizeof(memory),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int memory_ready(PyObject *module)
{
	type = (PyTypeObject *)PyType_FromSpec(&spec);
	return type == NULL ? -1 : PyModule_AddObjectRef(module, "Memory", (PyObject *)type);
}
