/* What a peer does with others without their part: mail, windows and the board. */
#include "core.h"

/* The bytes of a bytes object. */
static int to_bytes(PyObject *object, char **data, Py_ssize_t *size, const char *what)
{
	if (!PyBytes_Check(object))
		return must_be(object, what, -1, "bytes");
	return PyBytes_AsStringAndSize(object, data, size);
}

static const char *to_name(PyObject *object, const char *what)
{
	const char *text = to_text(object);
	if (text == NULL && PyErr_Occurred() == NULL)
		must_be(object, what, -1, "text without a 0 character");
	return text;
}

/* mail(node, to, topic, body) */
PyObject *peer_mail(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	uint32_t to;
	char *body;
	Py_ssize_t size;
	stepvan_error error;
	if (expect(count, 4, 4, "mail") < 0 || to_u64(args[0], &node, "node") < 0 || to_rank(args[1], &to, "to", -1) < 0)
		return NULL;
	const char *topic = to_name(args[2], "topic");
	if (topic == NULL || to_bytes(args[3], &body, &size, "body") < 0 ||
	    check_on(node, "mail", stepvan_mail(node, to, topic, body, (uint64_t)size, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* listen(node, topic) -> mailbox */
PyObject *peer_listen(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, mailbox;
	stepvan_error error;
	if (expect(count, 2, 2, "listen") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	const char *topic = to_name(args[1], "topic");
	if (topic == NULL || check_on(node, "listen", stepvan_listen(node, topic, &mailbox, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(mailbox);
}

/* Room for most messages. Longer ones are asked for again. */
#define ROOM 4096

typedef struct taking {
	uint64_t mailbox, capacity, size;
	uint32_t from;
	void *data;
} taking;

/* A message that is too long is a success here: its size tells. */
static int32_t take(void *call, int64_t slice, stepvan_error *error)
{
	taking *t = call;
	t->size = 0;
	int32_t code = stepvan_mailbox_next(t->mailbox, slice, &t->from, t->data, t->capacity, &t->size, error);
	return code == STEPVAN_TOO_SMALL ? STEPVAN_OK : code;
}

/* mailbox_next(mailbox, timeout) -> (rank, body) */
PyObject *mailbox_next(PyObject *self, arguments args, Py_ssize_t count)
{
	char room[ROOM];
	int64_t limit;
	taking t = {0, sizeof room, 0, 0, room};
	if (expect(count, 2, 2, "mailbox_next") < 0 || to_u64(args[0], &t.mailbox, "mailbox") < 0 || to_limit(args[1], &limit) < 0)
		return NULL;
	if (wait_for(take, &t, limit) < 0)
		return NULL;
	if (t.size <= sizeof room)
		return Py_BuildValue("(Iy#)", t.from, room, (Py_ssize_t)t.size);
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)t.size);
	if (bytes == NULL)
		return NULL;
	t.capacity = t.size;
	t.data = PyBytes_AsString(bytes);
	if (wait_for(take, &t, limit) < 0 || t.size != t.capacity) { /* another thread took it */
		Py_DECREF(bytes);
		return PyErr_Occurred() != NULL ? NULL : mailbox_next(self, args, count);
	}
	return Py_BuildValue("(IN)", t.from, bytes);
}

/* mailbox_notify(unused, mailbox, queue, token) */
PyObject *mailbox_notify(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t mailbox, queue, token;
	stepvan_error error;
	if (expect(count, 4, 4, "mailbox_notify") < 0 || to_u64(args[1], &mailbox, "mailbox") < 0 || to_u64(args[2], &queue, "queue") < 0 ||
	    to_u64(args[3], &token, "token") < 0 || check(stepvan_mailbox_notify(mailbox, queue, token, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* mailbox_close(mailbox) */
PyObject *mailbox_close(PyObject *self, PyObject *number)
{
	uint64_t mailbox;
	stepvan_error error;
	if (to_u64(number, &mailbox, "mailbox") < 0 || check(stepvan_mailbox_close(mailbox, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* The ranks of peers, for PyMem_Free. */
static uint32_t *to_ranks(PyObject *object, Py_ssize_t *count, const char *what)
{
	PyObject *tuple = to_tuple(object, what);
	if (tuple == NULL)
		return NULL;
	*count = PyTuple_Size(tuple);
	uint32_t *ranks = PyMem_Calloc((size_t)*count + 1, sizeof *ranks);
	if (ranks == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; ranks != NULL && i < *count; i++) {
		if (to_rank(PyTuple_GetItem(tuple, i), &ranks[i], what, i) < 0) {
			PyMem_Free(ranks);
			ranks = NULL;
		}
	}
	Py_DECREF(tuple);
	return ranks;
}

/* expose(node, tensor, whether peers write, ranks, whether with notes) -> (window, token, mailbox of the notes or 0) */
PyObject *peer_expose(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, window, notes = 0;
	uint8_t token[STEPVAN_TOKEN_BYTES];
	stepvan_view view;
	stepvan_error error;
	PyObject *holder;
	Py_ssize_t n;
	if (expect(count, 5, 5, "expose") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	uint32_t *ranks = to_ranks(args[3], &n, "peers");
	if (ranks == NULL)
		return NULL;
	int write = args[2] == Py_True;
	operand as = {"x", -1, write, view.strides};
	PyObject *owner = PyTuple_New(1); /* before the tensor is read: to allocate objects may end others */
	if (owner == NULL || strided_of(args[1], &as, &view, &holder) < 0) {
		Py_XDECREF(owner);
		PyMem_Free(ranks);
		return NULL;
	}
	PyTuple_SetItem(owner, 0, holder);
	int32_t code = stepvan_expose(node, &view, write ? STEPVAN_WRITE : 0, ranks, (uint64_t)n, (uintptr_t)owner, &window, token, args[4] == Py_True ? &notes : NULL, &error);
	PyMem_Free(ranks);
	if (check_on(node, "expose", code, &error) < 0) {
		Py_DECREF(owner);
		return NULL;
	}
	owner_settle(owner);
	collect_released();
	return Py_BuildValue("(Ky#K)", (unsigned long long)window, (const char *)token, (Py_ssize_t)sizeof token, (unsigned long long)notes);
}

static int32_t unexpose(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_unexpose(*(uint64_t *)call, slice, error);
}

/* unexpose(window, timeout) */
PyObject *peer_unexpose(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t window;
	int64_t limit;
	if (expect(count, 2, 2, "unexpose") < 0 || to_u64(args[0], &window, "window") < 0 || to_limit(args[1], &limit) < 0 ||
	    wait_for(unexpose, &window, limit) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* The arguments of get, put and put_rows in C. */
typedef struct reaching {
	uint64_t node;
	char *token, *note, *rows; /* rows: NULL where all of the tensor is meant */
	Py_ssize_t note_size, rows_size, dims; /* dims: -1 where the part begins at the first element */
	int64_t at[STEPVAN_MAX_RANK];
} reaching;

static int to_at(PyObject *object, reaching *r)
{
	r->dims = -1;
	if (object == Py_None)
		return 0;
	PyObject *tuple = to_tuple(object, "at");
	if (tuple == NULL)
		return -1;
	int failed = 0;
	r->dims = PyTuple_Size(tuple);
	if (r->dims > STEPVAN_MAX_RANK) {
		raise_invalid("at has %zd numbers (want at most %d): give the first element of the part", r->dims, STEPVAN_MAX_RANK);
		failed = -1;
	}
	for (Py_ssize_t i = 0; failed == 0 && i < r->dims; i++)
		failed = to_i64(PyTuple_GetItem(tuple, i), &r->at[i], "at");
	Py_DECREF(tuple);
	return failed;
}

static int to_token(PyObject *object, char **token)
{
	Py_ssize_t size;
	if (to_bytes(object, token, &size, "token") < 0)
		return -1;
	if (size == STEPVAN_TOKEN_BYTES)
		return 0;
	raise_invalid("token has %zd bytes (want %d): pass on all bytes of Window.token", size, STEPVAN_TOKEN_BYTES);
	return -1;
}

/* Begins a get or a put. */
static PyObject *reach(arguments args, const reaching *r, const operand *as, const char *name)
{
	stepvan_view view;
	stepvan_error error;
	PyObject *holder;
	uint64_t handle;
	operand of = *as;
	of.strides = view.strides;
	PyObject *owner = PyTuple_New(1); /* before the tensor is read: to allocate objects may end others */
	if (owner == NULL || strided_of(args[1], &of, &view, &holder) < 0) {
		Py_XDECREF(owner);
		return NULL;
	}
	PyTuple_SetItem(owner, 0, holder);
	if (r->dims >= 0 && r->dims != view.rank) {
		raise_invalid("at has %zd numbers for a tensor with %d dimensions: give the first element of the part", r->dims, view.rank);
		Py_DECREF(owner);
		return NULL;
	}
	const int64_t *at = r->dims < 0 ? NULL : r->at;
	const uint8_t *token = (const uint8_t *)r->token;
	int32_t code;
	if (r->rows != NULL) {
		uint64_t rows = (uint64_t)r->rows_size / sizeof(int64_t);
		Py_BEGIN_ALLOW_THREADS /* it picks rows itself */
		code = stepvan_put_rows(r->node, &view, (const int64_t *)r->rows, rows, token, at, r->note, (uint64_t)r->note_size, (uintptr_t)owner, &handle, &error);
		Py_END_ALLOW_THREADS
	} else {
		code = as->write ? stepvan_get(r->node, &view, token, at, (uintptr_t)owner, &handle, &error)
		                 : stepvan_put(r->node, &view, token, at, r->note, (uint64_t)r->note_size, (uintptr_t)owner, &handle, &error);
	}
	if (check_on(r->node, name, code, &error) < 0) {
		Py_DECREF(owner);
		return NULL;
	}
	owner_settle(owner);
	collect_released();
	return PyLong_FromUnsignedLongLong(handle);
}

/* get(node, tensor, token, at or None) -> handle */
PyObject *peer_get(PyObject *self, arguments args, Py_ssize_t count)
{
	static const operand as = {"y", -1, 1, NULL};
	reaching r = {0};
	if (expect(count, 4, 4, "get") < 0 || to_u64(args[0], &r.node, "node") < 0 || to_token(args[2], &r.token) < 0 || to_at(args[3], &r) < 0)
		return NULL;
	return reach(args, &r, &as, "get");
}

/* put(node, tensor, token, at or None, note or None) -> handle */
PyObject *peer_put(PyObject *self, arguments args, Py_ssize_t count)
{
	static const operand as = {"x", -1, 0, NULL};
	reaching r = {0};
	if (expect(count, 5, 5, "put") < 0 || to_u64(args[0], &r.node, "node") < 0 || to_token(args[2], &r.token) < 0 || to_at(args[3], &r) < 0)
		return NULL;
	if (args[4] != Py_None && to_bytes(args[4], &r.note, &r.note_size, "note") < 0)
		return NULL;
	return reach(args, &r, &as, "put");
}

/* put_rows(node, tensor, rows as bytes of int64, token, at or None, note or None) -> handle */
PyObject *peer_put_rows(PyObject *self, arguments args, Py_ssize_t count)
{
	static const operand as = {"x", -1, 0, NULL};
	reaching r = {0};
	if (expect(count, 6, 6, "put_rows") < 0 || to_u64(args[0], &r.node, "node") < 0 || to_bytes(args[2], &r.rows, &r.rows_size, "rows") < 0 ||
	    to_token(args[3], &r.token) < 0 || to_at(args[4], &r) < 0)
		return NULL;
	if (r.rows_size % (Py_ssize_t)sizeof(int64_t) != 0) {
		raise_invalid("rows has %zd bytes: give numbers of 8 bytes", r.rows_size);
		return NULL;
	}
	if (args[5] != Py_None && to_bytes(args[5], &r.note, &r.note_size, "note") < 0)
		return NULL;
	return reach(args, &r, &as, "put_rows");
}

/* post(node, key, value) -> handle */
PyObject *board_post(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handle;
	char *value;
	Py_ssize_t size;
	stepvan_error error;
	if (expect(count, 3, 3, "post") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	const char *key = to_name(args[1], "key");
	if (key == NULL || to_bytes(args[2], &value, &size, "value") < 0 ||
	    check_on(node, "post", stepvan_post(node, key, value, (uint64_t)size, &handle, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(handle);
}

/* unpost(node, key) -> handle */
PyObject *board_unpost(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handle;
	stepvan_error error;
	if (expect(count, 2, 2, "unpost") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	const char *key = to_name(args[1], "key");
	if (key == NULL || check_on(node, "remove", stepvan_unpost(node, key, &handle, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(handle);
}

/* watch(node, prefix) -> watch */
PyObject *board_watch(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, watch;
	stepvan_error error;
	if (expect(count, 2, 2, "watch") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	const char *prefix = to_name(args[1], "prefix");
	if (prefix == NULL || check_on(node, "watch", stepvan_watch(node, prefix, &watch, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(watch);
}

typedef struct watching {
	uint64_t watch, count;
} watching;

static int32_t look(void *call, int64_t slice, stepvan_error *error)
{
	watching *w = call;
	return stepvan_watch_next(w->watch, slice, &w->count, error);
}

/* watch_next(watch, timeout) -> [(key, value, order, owner)] */
PyObject *watch_next(PyObject *self, arguments args, Py_ssize_t count)
{
	watching w;
	int64_t limit;
	stepvan_error error;
	if (expect(count, 2, 2, "watch_next") < 0 || to_u64(args[0], &w.watch, "watch") < 0 || to_limit(args[1], &limit) < 0 || wait_for(look, &w, limit) < 0)
		return NULL;
	stepvan_entry *entry = PyMem_Malloc(sizeof *entry);
	PyObject *list = entry == NULL ? PyErr_NoMemory() : PyList_New((Py_ssize_t)w.count);
	for (uint64_t i = 0; list != NULL && i < w.count; i++) {
		PyObject *row = check(stepvan_watch_entry(w.watch, i, entry, &error), &error) < 0
		                    ? NULL
		                    : Py_BuildValue("(sy#Ks)", entry->key, (const char *)entry->value, (Py_ssize_t)entry->bytes, (unsigned long long)entry->order, entry->owner);
		if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) < 0)
			Py_CLEAR(list);
	}
	PyMem_Free(entry);
	return list;
}

/* watch_close(watch) */
PyObject *watch_close(PyObject *self, PyObject *number)
{
	uint64_t watch;
	stepvan_error error;
	if (to_u64(number, &watch, "watch") < 0 || check(stepvan_watch_close(watch, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}
