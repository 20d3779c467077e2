/* Batches of requests. */
#include "core.h"

/* Up to this a push is copied; above it is shown where it is in pooled memory, which costs two calls. */
#define SMALL 8192

/*
 * From so many bytes on of pooled memory that tensors show, pushes are copied: a program may look at what it got for as long
 * as it wants, and the pool, whose limit is STEPVAN_POOL_BYTES, must have room for the next ones.
 */
#define MOST_KEPT (64 * 1024 * 1024)

/* How much room the arrays of a batch have: what batches have needed so far. */
static uint64_t requests_room = 16, pushes_room = 64, pulls_room = 64;

typedef struct taking {
	stepvan_batch batch;
	uint64_t node;
	int32_t policy;
	struct taking *next; /* of kept */
} taking;

/*
 * Batches that have arrived, but could not be shown (a type of tensors whose package is missing, no memory, Ctrl-C), the
 * oldest first: the next get_batch of their node gives them, whatever its policy. Their requests are unanswered, so what
 * they point to stays, until the node is closed.
 */
static taking *kept;

/* One that is over, for the next get_batch: so that keeping a batch needs no memory. */
static taking *idle;

/* The arrays of a batch that is over, for the next one; nothing when its requests are NULL. */
static stepvan_batch spare;

static void release(stepvan_batch *b)
{
	PyMem_Free(b->requests);
	PyMem_Free(b->push);
	PyMem_Free(b->push_keys);
	PyMem_Free(b->pull);
	PyMem_Free(b->pull_keys);
	memset(b, 0, sizeof(*b));
}

/* Gives the arrays back, for the next batch where they have the room. */
static void drop(stepvan_batch *b)
{
	if (spare.requests != NULL || b->request_capacity < requests_room || b->push_capacity < pushes_room || b->pull_capacity < pulls_room) {
		release(b);
		return;
	}
	spare = *b;
	memset(b, 0, sizeof(*b));
}

static int make_room(stepvan_batch *b)
{
	*b = spare;
	memset(&spare, 0, sizeof(spare));
	if (b->requests != NULL && b->request_capacity >= requests_room && b->push_capacity >= pushes_room && b->pull_capacity >= pulls_room)
		return 0;
	release(b);
	b->request_capacity = requests_room;
	b->push_capacity = pushes_room;
	b->pull_capacity = pulls_room;
	b->requests = PyMem_Malloc(b->request_capacity * sizeof(stepvan_request));
	b->push = PyMem_Malloc(b->push_capacity * sizeof(stepvan_tensor));
	b->push_keys = PyMem_Malloc(b->push_capacity * sizeof(uint64_t));
	b->pull = PyMem_Malloc(b->pull_capacity * sizeof(stepvan_tensor));
	b->pull_keys = PyMem_Malloc(b->pull_capacity * sizeof(uint64_t));
	if (b->requests != NULL && b->push != NULL && b->push_keys != NULL && b->pull != NULL && b->pull_keys != NULL)
		return 0;
	release(b);
	PyErr_NoMemory();
	return -1;
}

static void grow(uint64_t *room, uint64_t need)
{
	while (*room < need)
		*room *= 2;
}

static int32_t take(void *call, int64_t slice, stepvan_error *error)
{
	taking *t = call;
	return stepvan_get_batch(t->node, t->policy, STEPVAN_VIEWS, slice, &t->batch, error);
}

static int is_too_small(const stepvan_batch *b)
{
	return b->requests_count > b->request_capacity || b->push_count > b->push_capacity || b->pull_count > b->pull_capacity;
}

/* That something is too small comes out of wait_for as success, so that the arrays can grow. */
static int32_t take_or_measure(void *call, int64_t slice, stepvan_error *error)
{
	int32_t code = take(call, slice, error);
	return code == STEPVAN_TOO_SMALL ? STEPVAN_OK : code;
}

static int take_batch(taking *t, int64_t limit)
{
	for (;;) {
		if (make_room(&t->batch) < 0)
			return -1;
		if (wait_for(take_or_measure, t, limit) < 0) {
			drop(&t->batch);
			return -1;
		}
		if (!is_too_small(&t->batch))
			return 0;
		grow(&requests_room, t->batch.requests_count);
		grow(&pushes_room, t->batch.push_count);
		grow(&pulls_room, t->batch.pull_count);
		drop(&t->batch);
	}
}

/* One for a call of get_batch; NULL with an exception. */
static taking *begin(void)
{
	taking *t = idle != NULL ? idle : PyMem_Malloc(sizeof(taking));
	idle = NULL;
	if (t == NULL)
		PyErr_NoMemory();
	return t;
}

static void finish(taking *t)
{
	drop(&t->batch);
	if (idle != NULL)
		PyMem_Free(t);
	else
		idle = t;
}

static int is_closed(uint64_t node)
{
	stepvan_node_info info;
	return stepvan_info(node, &info, NULL) != STEPVAN_OK;
}

/* The oldest batch that is kept of a node, or NULL. Those of closed nodes go. */
static taking *take_kept(uint64_t node)
{
	for (taking **at = &kept; *at != NULL;) {
		taking *t = *at;
		int over = is_closed(t->node);
		if (!over && t->node != node) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		if (!over)
			return t;
		finish(t);
	}
	return NULL;
}

static void keep(taking *t)
{
	taking **at = &kept;
	while (*at != NULL)
		at = &(*at)->next;
	t->next = NULL;
	*at = t;
}

/* A batch of the node, kept or taken; NULL with an exception. */
static taking *next_batch(uint64_t node, int32_t policy, int64_t limit)
{
	taking *t = take_kept(node);
	if (t != NULL || (t = begin()) == NULL)
		return t;
	t->node = node;
	t->policy = policy;
	if (take_batch(t, limit) == 0)
		return t;
	finish(t);
	return NULL;
}

/* What is to be shown of a batch. */
typedef struct showing {
	uint64_t node;
	framework *as;
	const stepvan_batch *batch;
	int plain;       /* tuples, not objects */
	uint64_t closes; /* that had ended before the batch was asked for: while no other has begun its memory is there */
} showing;

/* The bytes of all pushes: the pooled memory of a request is one piece, so that a tensor keeps no more. */
static uint64_t bytes_of(const stepvan_batch *b, const stepvan_request *r)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < r->pushes; i++)
		bytes += b->push[r->first_push + i].bytes;
	return bytes;
}

/*
 * Keeps the memory of a push while it is looked at: making a tensor runs code of others, and a thread without the interpreter
 * lock may be closing the node. 0; 1 when it cannot be kept, as there are too many such; -1 with an exception: it is gone.
 */
static int keep_push(const showing *s, const stepvan_request *r, const stepvan_tensor *tensor, uint64_t *number)
{
	stepvan_error error;
	int32_t code = stepvan_keep(s->node, r->handler, tensor->data, number, &error);
	if (code == STEPVAN_BUSY) /* the program does not know of the request: who answers it is who closes the node */
		code = STEPVAN_CLOSED;
	if (code == STEPVAN_CLOSED || code == STEPVAN_STALE)
		return check_on(s->node, "get_batch", code, &error);
	return code != STEPVAN_OK;
}

/* A copy of a few bytes, which are read before code of others runs. */
static PyObject *small_copy(framework *as, const stepvan_tensor *tensor)
{
	char bytes[SMALL];
	stepvan_tensor small = *tensor;
	memcpy(bytes, tensor->data, tensor->bytes);
	small.data = bytes;
	return copy_of(as, &small);
}

/* A copy of a push in memory that is not the program's. No close can begin while the interpreter lock is held. */
static PyObject *push_copy(const showing *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	if (tensor->bytes > 0 && tensor->bytes <= SMALL && closes_begun == s->closes)
		return small_copy(s->as, tensor);
	uint64_t number = 0;
	if (tensor->bytes > 0 && keep_push(s, r, tensor, &number) < 0)
		return NULL;
	PyObject *copy = copy_of(s->as, tensor);
	if (number != 0)
		stepvan_free(number, NULL);
	return copy;
}

/* A push in pooled memory, which is kept while the tensor is seen; a copy when that cannot be. */
static PyObject *kept_view(const showing *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	uint64_t number;
	int failed = memory_kept >= MOST_KEPT ? 1 : keep_push(s, r, tensor, &number);
	if (failed != 0)
		return failed < 0 ? NULL : push_copy(s, r, tensor);
	PyObject *m = memory_of_pool(tensor->data, tensor->bytes, number, bytes_of(s->batch, r));
	PyObject *view = m != NULL ? view_of(s->as, m, tensor) : NULL;
	Py_XDECREF(m);
	return view;
}

static PyObject *none(void)
{
	Py_INCREF(Py_None);
	return Py_None;
}

/*
 * A push as a tensor: the registered chunk where it is; pooled memory where it is, when it is large; else a copy. What
 * the worker has left in its own memory, which the program must not write to, is copied, too: for
 * an object when it is asked for, until when it is None.
 */
static PyObject *push_view(const showing *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	if ((tensor->flags & STEPVAN_READ_ONLY) != 0)
		return s->plain ? push_copy(s, r, tensor) : none();
	PyObject *view = chunk_view(s->as, tensor);
	if (view != NULL || PyErr_Occurred() != NULL)
		return view;
	if (tensor->bytes <= SMALL)
		return push_copy(s, r, tensor);
	return kept_view(s, r, tensor);
}

static PyObject *tensors_list(const showing *s, const stepvan_request *r)
{
	PyObject *list = PyList_New(r->pushes);
	for (uint32_t i = 0; list != NULL && i < r->pushes; i++) {
		PyObject *view = push_view(s, r, &s->batch->push[r->first_push + i]);
		if (view == NULL || PyList_SetItem(list, i, view) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *keys_list(const stepvan_batch *b, const stepvan_request *r)
{
	PyObject *list = PyList_New(r->pushes);
	for (uint32_t i = 0; list != NULL && i < r->pushes; i++) {
		PyObject *key = PyLong_FromUnsignedLongLong(b->push_keys[r->first_push + i]);
		if (key == NULL || PyList_SetItem(list, i, key) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* (handler, tensors, keys), as the original gives it. Takes references to the lists. */
static PyObject *tuple_of(const stepvan_request *r, PyObject *tensors, PyObject *keys)
{
	PyObject *tuple = PyTuple_New(3), *handler = PyLong_FromUnsignedLongLong(r->handler);
	if (tuple == NULL || handler == NULL) {
		Py_XDECREF(tuple);
		Py_XDECREF(handler);
		return NULL;
	}
	Py_INCREF(tensors);
	Py_INCREF(keys);
	PyTuple_SetItem(tuple, 0, handler);
	PyTuple_SetItem(tuple, 1, tensors);
	PyTuple_SetItem(tuple, 2, keys);
	return tuple;
}

static PyObject *item_of(const showing *s, const stepvan_request *r)
{
	PyObject *tensors = tensors_list(s, r), *keys = tensors != NULL ? keys_list(s->batch, r) : NULL, *item = NULL;
	if (keys != NULL)
		item = s->plain ? tuple_of(r, tensors, keys) : request_new(s->node, r, s->batch, s->as, tensors, keys);
	Py_XDECREF(tensors);
	Py_XDECREF(keys);
	return item;
}

static PyObject *list_of(const taking *t, framework *as, int plain, uint64_t closes)
{
	const stepvan_batch *b = &t->batch;
	showing s = {t->node, as, b, plain, closes};
	PyObject *list = PyList_New((Py_ssize_t)b->requests_count);
	for (uint64_t i = 0; list != NULL && i < b->requests_count; i++) {
		PyObject *item = item_of(&s, &b->requests[i]);
		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *without_pulls(const stepvan_batch *b)
{
	PyObject *list = PyList_New(0);
	for (uint64_t i = 0; list != NULL && i < b->requests_count; i++) {
		if (b->requests[i].pulls > 0)
			continue;
		PyObject *handler = PyLong_FromUnsignedLongLong(b->requests[i].handler);
		if (handler == NULL || PyList_Append(list, handler) < 0)
			Py_CLEAR(list);
		Py_XDECREF(handler);
	}
	return list;
}

/* What get_batch gives fserver_lib. */
static PyObject *plain_list(const taking *t, framework *as, uint64_t closes)
{
	PyObject *list = list_of(t, as, 1, closes), *handlers = list != NULL ? without_pulls(&t->batch) : NULL;
	PyObject *both = handlers != NULL ? Py_BuildValue("(OO)", list, handlers) : NULL;
	Py_XDECREF(handlers);
	Py_XDECREF(list);
	return both;
}

/*
 * get_batch(node, policy, timeout) -> [Request]; with True as well: ([(handler, tensors, keys)],
 * [handlers of requests without pulls]). Budget: 600 ns per request with one push in a chunk.
 */
PyObject *get_batch(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	int64_t limit, policy;
	if (expect(count, 3, 4, "get_batch") < 0 || to_u64(args[0], &node, "node") < 0 || to_i64(args[1], &policy, "policy") < 0 || to_limit(args[2], &limit) < 0)
		return NULL;
	int plain = count > 3 && args[3] == Py_True;
	collect_released();
	framework *as = preferred(); /* before something is taken that could not be shown */
	if (as == NULL || chunks_prepare() < 0)
		return NULL;
	uint64_t closes = closes_ended;
	taking *t = next_batch(node, policy < INT32_MIN || policy > INT32_MAX ? INT32_MIN : (int32_t)policy, limit);
	if (t == NULL)
		return NULL;
	PyObject *list = plain ? plain_list(t, as, closes) : list_of(t, as, 0, closes);
	if (list != NULL)
		finish(t);
	else
		keep(t);
	return list;
}
