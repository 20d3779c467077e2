/*
 * Chunks: a registered receive buffer. Pushes that arrive in it become tensors in place. These hold the buffer's
 * tensor, so they stay valid whatever happens to the registration.
 */
#include "core.h"

/*
 * The last push of a chunk. Each push gets a tensor of its own: tensors of torch would else share a storage. Then the
 * next request would see what the program does to it (share_memory_, a queue of torch). Each get_batch makes a tensor
 * ahead, so that a request need not wait for it.
 */
typedef struct chunk {
	framework *as;
	PyObject *memory, *spare;
	stepvan_tensor last;
} chunk;

typedef struct chunks {
	PyObject_HEAD
	void *data;
	uint64_t bytes, each;
	Py_ssize_t count;
	int shared; /* memory of stepvan_alloc, which the library holds without an owner */
	PyObject *holder;
	accelerator device; /* that holds the buffer: its storage is holder */
	chunk *at;
} chunks;

static PyTypeObject *type;
static ranges registered;

/* Chunks that want a spare. */
static struct {
	chunks *of;
	chunk *at;
} spare_requests[64];
static Py_ssize_t spare_request_count;

static void request_spare(chunks *of, chunk *at)
{
	if (spare_request_count == COUNT(spare_requests))
		return;
	spare_requests[spare_request_count].of = of;
	spare_requests[spare_request_count++].at = at;
}

static void cancel_spares(const chunks *of)
{
	Py_ssize_t n = 0;
	for (Py_ssize_t i = 0; i < spare_request_count; i++) {
		if (spare_requests[i].of != of)
			spare_requests[n++] = spare_requests[i];
	}
	spare_request_count = n;
}

/* A tensor of a push. New reference. */
static PyObject *make_view(const chunks *c, framework *as, PyObject *memory, const stepvan_tensor *tensor)
{
	return c->device.like != NULL ? accelerator_view(&c->device, tensor) : view_of(as, memory, tensor);
}

/* Makes the requested spares: before a wait, or whenever there is time. */
int chunks_prepare(void)
{
	while (spare_request_count > 0) {
		chunks *of = spare_requests[--spare_request_count].of;
		chunk *at = spare_requests[spare_request_count].at;
		PyObject *memory = at->memory;
		if (at->spare != NULL || memory == NULL)
			continue;
		stepvan_tensor last = at->last; /* making a view runs foreign code, which may change it */
		Py_INCREF((PyObject *)of);
		Py_INCREF(memory);
		PyObject *view = make_view(of, at->as, memory, &last);
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

/*
 * New reference. chunk_view finds the object by its addresses until it is deallocated. holder is at->storage where an
 * accelerator holds the buffer.
 */
PyObject *chunks_new(const stepvan_tensor *tensor, Py_ssize_t count, PyObject *holder, const accelerator *at)
{
	chunks *c = PyObject_New(chunks, type);
	if (c == NULL)
		return NULL;
	Py_XINCREF(holder);
	c->holder = holder;
	c->device = *at;
	Py_XINCREF(c->device.like);
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
	cancel_spares(c);
	for (Py_ssize_t i = 0; c->at != NULL && i < c->count; i++) {
		Py_XDECREF(c->at[i].spare);
		Py_XDECREF(c->at[i].memory);
	}
	PyMem_Free(c->at);
	Py_XDECREF(c->device.like);
	Py_XDECREF(c->holder);
	PyTypeObject *of = Py_TYPE(self);
	PyObject_Free(self);
	Py_DECREF(of);
}

static int is_last(const chunk *at, const framework *as, const stepvan_tensor *tensor)
{
	const stepvan_tensor *last = &at->last;
	return at->memory != NULL && at->as == as && last->data == tensor->data && last->dtype == tensor->dtype && last->rank == tensor->rank &&
		memcmp(last->shape, tensor->shape, (size_t)tensor->rank * sizeof(int64_t)) == 0;
}

static int set_last(chunks *c, chunk *at, framework *as, const stepvan_tensor *tensor)
{
	PyObject *memory = memory_new(tensor->data, tensor->bytes, 0, 0, c->holder);
	if (memory == NULL)
		return -1;
	at->as = as;
	at->last = *tensor;
	replace(&at->spare, NULL);
	replace(&at->memory, memory);
	return 0;
}

/*
 * A tensor of a push in place in its chunk. NULL without an exception when it is in memory of the host and outside of
 * all chunks, NULL with one on failure. Budget: 50 ns if the chunk's last push had the same shape.
 */
PyObject *chunk_view(framework *as, const stepvan_tensor *tensor)
{
	int on_host = tensor->device_kind == 0;
	PyObject *found = tensor->bytes > 0 || !on_host ? ranges_find(&registered, tensor->data, tensor->bytes) : NULL;
	if (found != NULL && (((chunks *)found)->device.like == NULL) != on_host)
		found = NULL;
	if (found == NULL)
		return on_host ? NULL : raise_not_supported("a push: an accelerator holds it, in memory that this Python has not registered");
	chunks *c = (chunks *)found;
	uint64_t i = (uint64_t)((char *)tensor->data - (char *)c->data) / (c->each > 0 ? c->each : 1);
	chunk *at = &c->at[i < (uint64_t)c->count ? i : 0];
	PyObject *view = NULL;
	Py_INCREF(found); /* making a view runs foreign code */
	if (is_last(at, as, tensor) || set_last(c, at, as, tensor) == 0) {
		PyObject *memory = at->memory;
		Py_INCREF(memory);
		view = at->spare;
		at->spare = NULL;
		if (view == NULL)
			view = make_view(c, as, memory, tensor);
		Py_DECREF(memory);
		request_spare(c, at);
	}
	if (view != NULL && !on_host && accelerator_check(view, tensor) < 0)
		Py_CLEAR(view);
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
