/*
 * Chunks: a receive buffer that is registered. Pushes that arrive in it are shown where they are. What they
 * show holds the buffer's tensor, so they stay valid whatever becomes of the registration.
 */
#include "core.h"

/*
 * What was shown last of a chunk. Each time it is a tensor of its own: of torch they would else share a storage, and what
 * the program does to that (share_memory_, a queue of torch) would be seen by the next request. One is made ahead, when
 * get_batch is called, so that a request need not wait for it.
 */
typedef struct chunk {
	framework *as;
	PyObject *memory, *spare;
	stepvan_tensor shown;
} chunk;

typedef struct chunks {
	PyObject_HEAD
	void *data;
	uint64_t bytes, each;
	Py_ssize_t count;
	int shared; /* memory of stepvan_alloc, which the library holds without being given an owner */
	PyObject *keep;
	chunk *at;
} chunks;

static PyTypeObject *type;
static ranges registered;

/* Chunks that want a spare. */
static struct {
	chunks *of;
	chunk *at;
} wanting[64];
static Py_ssize_t wanting_count;

static void want(chunks *of, chunk *at)
{
	if (wanting_count == COUNT(wanting))
		return;
	wanting[wanting_count].of = of;
	wanting[wanting_count++].at = at;
}

static void want_no_more(const chunks *of)
{
	Py_ssize_t n = 0;
	for (Py_ssize_t i = 0; i < wanting_count; i++) {
		if (wanting[i].of != of)
			wanting[n++] = wanting[i];
	}
	wanting_count = n;
}

/* Makes the spares that are wanted: before a wait, or whenever there is time. */
int chunks_prepare(void)
{
	while (wanting_count > 0) {
		chunks *of = wanting[--wanting_count].of;
		chunk *at = wanting[wanting_count].at;
		PyObject *memory = at->memory;
		if (at->spare != NULL || memory == NULL)
			continue;
		stepvan_tensor shown = at->shown; /* views run code of others, by which it may change */
		Py_INCREF((PyObject *)of);
		Py_INCREF(memory);
		PyObject *view = view_of(at->as, memory, &shown);
		if (view != NULL && at->memory == memory)
			replace(&at->spare, view);
		else
			Py_XDECREF(view);
		Py_DECREF(memory);
		Py_DECREF((PyObject *)of);
		if (view == NULL)
			return -1;
	}
	return 0;
}

/* New reference. The object is found by its addresses until it goes. */
PyObject *chunks_new(const stepvan_tensor *tensor, Py_ssize_t count, PyObject *keep)
{
	chunks *c = PyObject_New(chunks, type);
	if (c == NULL)
		return NULL;
	Py_XINCREF(keep);
	c->keep = keep;
	c->data = tensor->data;
	c->bytes = tensor->bytes;
	c->shared = tensor->memory != 0;
	c->count = count > 0 ? count : 1;
	c->each = tensor->bytes / (uint64_t)c->count;
	c->at = PyMem_Calloc((size_t)c->count, sizeof(chunk));
	if (c->at == NULL)
		PyErr_NoMemory();
	if (c->at == NULL || ranges_add(&registered, c->data, c->bytes, (PyObject *)c) < 0) {
		Py_DECREF(c);
		return NULL;
	}
	return (PyObject *)c;
}

static void chunks_dealloc(PyObject *self)
{
	chunks *c = (chunks *)self;
	ranges_remove(&registered, c->data, self);
	want_no_more(c);
	for (Py_ssize_t i = 0; c->at != NULL && i < c->count; i++) {
		Py_XDECREF(c->at[i].spare);
		Py_XDECREF(c->at[i].memory);
	}
	PyMem_Free(c->at);
	Py_XDECREF(c->keep);
	PyTypeObject *of = Py_TYPE(self);
	PyObject_Free(self);
	Py_DECREF(of);
}

static int shows(const chunk *at, const framework *as, const stepvan_tensor *tensor)
{
	const stepvan_tensor *last = &at->shown;
	return at->memory != NULL && at->as == as && last->data == tensor->data && last->dtype == tensor->dtype && last->rank == tensor->rank &&
		memcmp(last->shape, tensor->shape, (size_t)tensor->rank * sizeof(int64_t)) == 0;
}

static int show(chunks *c, chunk *at, framework *as, const stepvan_tensor *tensor)
{
	PyObject *memory = memory_new(tensor->data, tensor->bytes, 0, 0, c->keep);
	if (memory == NULL)
		return -1;
	at->as = as;
	at->shown = *tensor;
	replace(&at->spare, NULL);
	replace(&at->memory, memory);
	return 0;
}

/*
 * A tensor that shows a push in the chunk where it is; NULL, with or without an exception, when it is in
 * none. Budget: 50 ns for one that has the shape of the chunk's last.
 */
PyObject *chunk_view(framework *as, const stepvan_tensor *tensor)
{
	PyObject *found = tensor->bytes > 0 ? ranges_find(&registered, tensor->data, tensor->bytes) : NULL;
	if (found == NULL)
		return NULL;
	chunks *c = (chunks *)found;
	uint64_t i = (uint64_t)((char *)tensor->data - (char *)c->data) / (c->each > 0 ? c->each : 1);
	chunk *at = &c->at[i < (uint64_t)c->count ? i : 0];
	PyObject *view = NULL;
	Py_INCREF(found); /* views run code of others */
	if (shows(at, as, tensor) || show(c, at, as, tensor) == 0) {
		PyObject *memory = at->memory;
		Py_INCREF(memory);
		view = at->spare;
		at->spare = NULL;
		if (view == NULL)
			view = view_of(as, memory, tensor);
		Py_DECREF(memory);
		want(c, at);
	}
	Py_DECREF(found);
	return view;
}

static PyObject *chunks_shared(PyObject *self, void *unused)
{
	return PyBool_FromLong(((chunks *)self)->shared);
}

static PyGetSetDef fields[] = {
	{"shared", chunks_shared, NULL, "Whether it is memory of stepvan.empty.", NULL},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_dealloc, chunks_dealloc},
	{Py_tp_getset, fields},
	{Py_tp_doc, "A receive buffer that is registered."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "stepvan._core.Chunks",
	.basicsize = sizeof(chunks),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int chunks_ready(PyObject *module)
{
	type = (PyTypeObject *)PyType_FromSpec(&spec);
	return type == NULL ? -1 : PyModule_AddObjectRef(module, "Chunks", (PyObject *)type);
}
