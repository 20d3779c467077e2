/* Batches of requests. */
#include "core.h"

/* A push of up to so many bytes is copied. A larger one stays in pooled memory, which costs two calls. */
#define SMALL 8192

/*
 * Tensors hold at most so many bytes of pooled memory; after that pushes are copied. A program may hold its
 * tensors for as long as it wants, and the pool (STEPVAN_POOL_BYTES) must have room for the next pushes.
 */
#define MOST_HELD (64 * 1024 * 1024)

/* The capacities of a batch's arrays: what batches have needed so far. */
static uint64_t requests_room = 16, pushes_room = 64, pulls_room = 64;

typedef struct get_call {
	stepvan_batch batch;
	uint64_t node;
	int32_t policy;
	struct get_call *next; /* of kept */
} get_call;

/*
 * Batches that have arrived, but could not be converted to objects: the package of a type is missing, no memory,
 * Ctrl-C. Oldest first. The next get_batch of their node returns them, whatever its policy. Their requests are
 * unanswered, so the memory that they point to stays until the node is closed.
 */
static get_call *deferred;

/* A finished one, for the next get_batch: so deferring a batch needs no memory. */
static get_call *spare_call;

/* The arrays of a finished batch, for the next one; requests is NULL before the first. */
static stepvan_batch spare_arrays;

static void free_arrays(stepvan_batch *b)
{
	PyMem_Free(b->requests);
	PyMem_Free(b->push);
	PyMem_Free(b->push_keys);
	PyMem_Free(b->pull);
	PyMem_Free(b->pull_keys);
	memset(b, 0, sizeof(*b));
}

/* Keeps the arrays for the next batch if they are large enough, else frees them. */
static void recycle(stepvan_batch *b)
{
	if (spare_arrays.requests != NULL || b->request_capacity < requests_room || b->push_capacity < pushes_room || b->pull_capacity < pulls_room) {
		free_arrays(b);
		return;
	}
	spare_arrays = *b;
	memset(b, 0, sizeof(*b));
}

static int make_room(stepvan_batch *b)
{
	*b = spare_arrays;
	memset(&spare_arrays, 0, sizeof(spare_arrays));
	if (b->requests != NULL && b->request_capacity >= requests_room && b->push_capacity >= pushes_room && b->pull_capacity >= pulls_room)
		return 0;
	free_arrays(b);
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
	free_arrays(b);
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
	get_call *t = call;
	return stepvan_get_batch(t->node, t->policy, STEPVAN_VIEWS, slice, &t->batch, error);
}

static int is_too_small(const stepvan_batch *b)
{
	return b->requests_count > b->request_capacity || b->push_count > b->push_capacity || b->pull_count > b->pull_capacity;
}

/* Reports STEPVAN_TOO_SMALL to wait_for as success, so that the arrays can grow. */
static int32_t take_or_measure(void *call, int64_t slice, stepvan_error *error)
{
	int32_t code = take(call, slice, error);
	return code == STEPVAN_TOO_SMALL ? STEPVAN_OK : code;
}

static int take_batch(get_call *t, int64_t limit)
{
	for (;;) {
		if (make_room(&t->batch) < 0)
			return -1;
		if (wait_for(take_or_measure, t, limit) < 0) {
			recycle(&t->batch);
			return -1;
		}
		if (!is_too_small(&t->batch))
			return 0;
		grow(&requests_room, t->batch.requests_count);
		grow(&pushes_room, t->batch.push_count);
		grow(&pulls_room, t->batch.pull_count);
		recycle(&t->batch);
	}
}

/* Memory for a call of get_batch; NULL with an exception. */
static get_call *call_new(void)
{
	get_call *t = spare_call != NULL ? spare_call : PyMem_Malloc(sizeof(get_call));
	spare_call = NULL;
	if (t == NULL)
		PyErr_NoMemory();
	return t;
}

static void call_done(get_call *t)
{
	recycle(&t->batch);
	if (spare_call != NULL)
		PyMem_Free(t);
	else
		spare_call = t;
}

static int is_closed(uint64_t node)
{
	stepvan_node_info info;
	return stepvan_info(node, &info, NULL) != STEPVAN_OK;
}

/* The oldest deferred batch of a node, or NULL. Frees the batches of closed nodes. */
static get_call *take_deferred(uint64_t node)
{
	for (get_call **at = &deferred; *at != NULL;) {
		get_call *t = *at;
		int over = is_closed(t->node);
		if (!over && t->node != node) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		if (!over)
			return t;
		call_done(t);
	}
	return NULL;
}

static void defer(get_call *t)
{
	get_call **at = &deferred;
	while (*at != NULL)
		at = &(*at)->next;
	t->next = NULL;
	*at = t;
}

/* A batch of the node, a deferred or a new one; NULL with an exception. */
static get_call *next_batch(uint64_t node, int32_t policy, int64_t limit)
{
	get_call *t = take_deferred(node);
	if (t != NULL || (t = call_new()) == NULL)
		return t;
	t->node = node;
	t->policy = policy;
	if (take_batch(t, limit) == 0)
		return t;
	call_done(t);
	return NULL;
}

/* A batch on its way to objects of Python. */
typedef struct conversion {
	uint64_t node;
	PyObject *server; /* for Requests; None: tuples */
	framework *as;
	const stepvan_batch *batch;
	uint64_t closes; /* node closes that had ended before get_batch: while no other begins, the memory of the batch stays */
} conversion;

/* The bytes of all pushes: the pooled memory of a request is one piece, so a tensor holds no more than that. */
static uint64_t bytes_of(const stepvan_batch *b, const stepvan_request *r)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < r->pushes; i++)
		bytes += b->push[r->first_push + i].bytes;
	return bytes;
}

/*
 * Holds the memory of a push while a tensor is made of it: that runs foreign code, and a thread without the
 * interpreter lock may be closing the node. Returns 0; 1 when too much is held already; -1 with an exception when
 * the memory is gone.
 */
static int hold_push(const conversion *s, const stepvan_request *r, const stepvan_tensor *tensor, uint64_t *number)
{
	stepvan_error error;
	int32_t code = stepvan_keep(s->node, r->handler, tensor->data, number, &error);
	if (code == STEPVAN_BUSY) /* the program does not know the request, so only a close of the node answers it */
		code = STEPVAN_CLOSED;
	if (code == STEPVAN_CLOSED || code == STEPVAN_STALE)
		return check_on(s->node, "get_batch", code, &error);
	return code != STEPVAN_OK;
}

/* A copy of a few bytes, which are read before foreign code runs. */
static PyObject *small_copy(framework *as, const stepvan_tensor *tensor)
{
	char bytes[SMALL];
	stepvan_tensor small = *tensor;
	memcpy(bytes, tensor->data, tensor->bytes);
	small.data = bytes;
	return copy_of(as, &small);
}

/* A copy of a push in memory of the library. No close can begin while the interpreter lock is held. */
static PyObject *push_copy(const conversion *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	if (tensor->bytes > 0 && tensor->bytes <= SMALL && closes_begun == s->closes)
		return small_copy(s->as, tensor);
	uint64_t number = 0;
	if (tensor->bytes > 0 && hold_push(s, r, tensor, &number) < 0)
		return NULL;
	PyObject *copy = copy_of(s->as, tensor);
	if (number != 0)
		stepvan_free(number, NULL);
	return copy;
}

/* A push in pooled memory, which the tensor holds; a copy when too much is held already. */
static PyObject *pooled_view(const conversion *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	uint64_t number;
	int failed = pooled_bytes_held >= MOST_HELD ? 1 : hold_push(s, r, tensor, &number);
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
 * A push as a tensor: in place in a registered chunk, in place in pooled memory when it is large, else a copy. A
 * push that the worker left in its own memory is copied, since the program must not write to it. A Request copies
 * it when the program reads it, and has None until then.
 */
static PyObject *push_view(const conversion *s, const stepvan_request *r, const stepvan_tensor *tensor)
{
	if ((tensor->flags & STEPVAN_READ_ONLY) != 0)
		return s->server == Py_None ? push_copy(s, r, tensor) : none();
	PyObject *view = chunk_view(s->as, tensor);
	if (view != NULL || PyErr_Occurred() != NULL)
		return view;
	if (tensor->bytes <= SMALL)
		return push_copy(s, r, tensor);
	return pooled_view(s, r, tensor);
}

static PyObject *tensors_list(const conversion *s, const stepvan_request *r)
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

/* (handler, tensors, keys), as in StepMesh. Takes references to the lists. */
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

static PyObject *item_of(const conversion *s, const stepvan_request *r)
{
	PyObject *tensors = tensors_list(s, r), *keys = tensors != NULL ? keys_list(s->batch, r) : NULL, *item = NULL;
	if (keys != NULL)
		item = s->server == Py_None ? tuple_of(r, tensors, keys) : request_new(s->node, s->server, r, s->batch, s->as, tensors, keys);
	Py_XDECREF(tensors);
	Py_XDECREF(keys);
	return item;
}

static PyObject *list_of(const get_call *t, framework *as, PyObject *server, uint64_t closes)
{
	const stepvan_batch *b = &t->batch;
	conversion s = {t->node, server, as, b, closes};
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

/* The result of get_batch for fserver_lib. */
static PyObject *plain_list(const get_call *t, framework *as, uint64_t closes)
{
	PyObject *list = list_of(t, as, Py_None, closes), *handlers = list != NULL ? without_pulls(&t->batch) : NULL;
	PyObject *both = handlers != NULL ? Py_BuildValue("(OO)", list, handlers) : NULL;
	Py_XDECREF(handlers);
	Py_XDECREF(list);
	return both;
}

/*
 * get_batch(node, policy, timeout, server) -> [Request], whose server that is. With None: ([(handler, tensors, keys)],
 * [handlers of requests without pulls]). Budget: 600 ns per request with one push in a chunk.
 */
PyObject *get_batch(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	int64_t limit, policy;
	if (expect(count, 4, 4, "get_batch") < 0 || to_u64(args[0], &node, "node") < 0 || to_i64(args[1], &policy, "policy") < 0 || to_limit(args[2], &limit) < 0)
		return NULL;
	collect_released();
	framework *as = preferred(); /* before a batch is taken that could not be converted */
	if (as == NULL || chunks_prepare() < 0)
		return NULL;
	uint64_t closes = closes_ended;
	get_call *t = next_batch(node, policy < INT32_MIN || policy > INT32_MAX ? INT32_MIN : (int32_t)policy, limit);
	if (t == NULL)
		return NULL;
	PyObject *list = args[3] == Py_None ? plain_list(t, as, closes) : list_of(t, as, args[3], closes);
	if (list != NULL)
		call_done(t);
	else
		defer(t);
	return list;
}
