/* What a peer does with the others: transfers, plans and groups. */
#include "core.h"

/* The rank of a peer. */
int to_rank(PyObject *object, uint32_t *rank, const char *what, Py_ssize_t index)
{
	uint64_t number;
	if (to_u64_at(object, &number, what, index) < 0)
		return -1;
	if (number > INT32_MAX)
		return must_be(object, what, index, "the rank of a peer");
	*rank = (uint32_t)number;
	return 0;
}

typedef int32_t (*starter)(uint64_t node, const stepvan_view *view, uint32_t with, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error);

/* Begins one side of a transfer. The numbers are read first, as their objects may run code that moves the tensor. */
static PyObject *transfer(starter function, const operand *as, arguments args, Py_ssize_t count, const char *name, const char *with)
{
	uint64_t node, tag, handle;
	uint32_t rank;
	stepvan_view view;
	stepvan_error error;
	PyObject *holder;
	operand of = *as;
	of.strides = view.strides;
	if (expect(count, 4, 4, name) < 0 || to_u64(args[0], &node, "node") < 0 || to_rank(args[2], &rank, with, -1) < 0 || to_u64(args[3], &tag, "tag") < 0)
		return NULL;
	PyObject *owner = PyTuple_New(1); /* before the tensor is read: to allocate objects may end others */
	if (owner == NULL)
		return NULL;
	if (strided_of(args[1], &of, &view, &holder) < 0) {
		Py_DECREF(owner);
		return NULL;
	}
	PyTuple_SetItem(owner, 0, holder);
	int keeps = view.memory == 0 || storages_wanted > 0; /* memory of the library keeps itself */
	int32_t code = function(node, &view, rank, tag, keeps ? (uintptr_t)owner : 0, &handle, &error);
	if (code == STEPVAN_OK && keeps)
		owner_settle(owner); /* the library holds it until stepvan_released */
	else
		Py_DECREF(owner);
	PyObject *result = check_on(node, name, code, &error) < 0 ? NULL : PyLong_FromUnsignedLongLong(handle);
	if (result != NULL)
		collect_released();
	return result;
}

/* send(node, tensor, to, tag) -> handle. Budget: 1 us for a tensor of torch. */
PyObject *peer_send(PyObject *self, arguments args, Py_ssize_t count)
{
	static const operand as = {"x", -1, 0, NULL};
	return transfer(stepvan_send, &as, args, count, "send", "to");
}

/* recv(node, tensor, source, tag) -> handle. Budget: 1 us for a tensor of torch. */
PyObject *peer_recv(PyObject *self, arguments args, Py_ssize_t count)
{
	static const operand as = {"y", -1, 1, NULL};
	return transfer(stepvan_recv, &as, args, count, "recv", "source");
}

/* cancel(node, handle) -> whether the receive was taken back */
PyObject *peer_cancel(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handle;
	int32_t is = 0;
	stepvan_error error;
	if (expect(count, 2, 2, "cancel") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &handle, "handle") < 0 ||
	    check_on(node, "cancel", stepvan_cancel(node, handle, &is, &error), &error) < 0)
		return NULL;
	return PyBool_FromLong(is);
}

/* The moves of one direction: views, and (id, rank, label or None, wire, merge) for each. */
typedef struct moves {
	PyObject *tuple; /* of the second; it owns the labels */
	stepvan_move *at;
	Py_ssize_t count;
} moves;

static int set_move(stepvan_move *m, PyObject *row, const char *list, Py_ssize_t index)
{
	static const char *const fields[] = {"id", "peer"};
	char what[32];
	uint64_t wire, merge;
	if (!PyTuple_Check(row) || PyTuple_Size(row) != 5) {
		PyErr_SetString(PyExc_TypeError, "_core.plan takes rows of (id, peer, label, wire, merge)");
		return -1;
	}
	if (to_u64(PyTuple_GetItem(row, 3), &wire, "wire") < 0 || to_u64(PyTuple_GetItem(row, 4), &merge, "merge") < 0)
		return -1;
	m->wire = (uint8_t)wire;
	m->merge = (uint8_t)merge;
	PyOS_snprintf(what, sizeof what, "%s[%zd].%s", list, index, fields[0]);
	if (to_u64(PyTuple_GetItem(row, 0), &m->id, what) < 0)
		return -1;
	PyOS_snprintf(what, sizeof what, "%s[%zd].%s", list, index, fields[1]);
	if (to_rank(PyTuple_GetItem(row, 1), &m->peer, what, -1) < 0)
		return -1;
	PyObject *label = PyTuple_GetItem(row, 2);
	if (label == Py_None)
		return 0;
	m->label = to_text(label);
	if (m->label != NULL || PyErr_Occurred() != NULL)
		return m->label != NULL ? 0 : -1;
	PyOS_snprintf(what, sizeof what, "%s[%zd].label", list, index);
	return must_be(label, what, -1, "text without a 0 character, or None");
}

/* Reads the moves. moves_done must follow in any case. */
static int moves_of(moves *m, PyObject *views, PyObject *rows, const char *list)
{
	m->at = NULL;
	m->count = views_count(views);
	m->tuple = m->count < 0 ? NULL : to_tuple(rows, list);
	if (m->tuple == NULL)
		return -1;
	if (PyTuple_Size(m->tuple) != m->count) {
		PyErr_SetString(PyExc_TypeError, "_core.plan takes a row for each view");
		return -1;
	}
	m->at = PyMem_Calloc((size_t)m->count + 1, sizeof *m->at);
	if (m->at == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < m->count; i++) {
		m->at[i].view = *views_at(views, i);
		if (set_move(&m->at[i], PyTuple_GetItem(m->tuple, i), list, i) < 0)
			return -1;
	}
	return 0;
}

static void moves_done(moves *m)
{
	PyMem_Free(m->at);
	Py_XDECREF(m->tuple);
}

/*
 * plan(node, name, views of the sends, their rows, views of the receives, their rows, timeout, replicas) -> plan.
 * The plan is the handle of its agreement.
 */
PyObject *peer_plan(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, number;
	int64_t limit;
	stepvan_error error;
	moves sends = {0}, recvs = {0};
	PyObject *owner = NULL, *result = NULL;
	if (expect(count, 8, 8, "plan") < 0 || to_u64(args[0], &node, "node") < 0 || to_limit(args[6], &limit) < 0)
		return NULL;
	const char *name = to_text(args[1]);
	if (name == NULL) {
		if (PyErr_Occurred() == NULL)
			must_be(args[1], "name", -1, "text without a 0 character");
		return NULL;
	}
	if (moves_of(&sends, args[2], args[3], "sends") < 0 || moves_of(&recvs, args[4], args[5], "recvs") < 0)
		goto done;
	owner = PyTuple_Pack(2, args[2], args[4]);
	if (owner == NULL)
		goto done;
	const uint32_t flags = args[7] == Py_True ? STEPVAN_PLAN_REPLICAS : 0;
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_plan_with(node, name, sends.at, (uint64_t)sends.count, recvs.at, (uint64_t)recvs.count, flags, (uintptr_t)owner, limit, &number, &error);
	Py_END_ALLOW_THREADS
	if (check_on(node, "plan", code, &error) < 0)
		Py_DECREF(owner);
	else
		result = PyLong_FromUnsignedLongLong(number);
done:
	moves_done(&sends);
	moves_done(&recvs);
	if (result != NULL)
		collect_released();
	return result;
}

/* plan_begin(plan, version) -> handle */
PyObject *plan_begin(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t plan, version, handle;
	stepvan_error error;
	if (expect(count, 2, 2, "plan_begin") < 0 || to_u64(args[0], &plan, "plan") < 0 || to_u64(args[1], &version, "version") < 0 ||
	    check(stepvan_plan_begin(plan, version, &handle, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(handle);
}

/* plan_state(plan) -> (offered, version) */
PyObject *plan_state(PyObject *self, PyObject *number)
{
	uint64_t plan, offered, version;
	stepvan_error error;
	if (to_u64(number, &plan, "plan") < 0 || check(stepvan_plan_state(plan, &offered, &version, NULL, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(KK)", (unsigned long long)offered, (unsigned long long)version);
}

/* plan_stats(plan) -> (moves, pairs, sent, received, viewed, written, streamed, local, merged, passed) */
PyObject *plan_stats(PyObject *self, PyObject *number)
{
	typedef unsigned long long ull;
	uint64_t plan;
	stepvan_plan_stats s;
	stepvan_error error;
	if (to_u64(number, &plan, "plan") < 0 || check(stepvan_plan_state(plan, NULL, NULL, &s, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(KKKKKKKKKK)", (ull)s.moves, (ull)s.pairs, (ull)s.sent, (ull)s.received, (ull)s.viewed, (ull)s.written, (ull)s.streamed,
		(ull)s.local, (ull)s.merged, (ull)s.passed);
}

static int32_t close_plan(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_plan_close(*(uint64_t *)call, slice, error);
}

/* plan_close(plan, timeout) */
PyObject *plan_close(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t plan;
	int64_t limit;
	if (expect(count, 2, 2, "plan_close") < 0 || to_u64(args[0], &plan, "plan") < 0 || to_limit(args[1], &limit) < 0 ||
	    wait_for(close_plan, &plan, limit) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* group(node, name, ranks) -> group */
PyObject *peer_group(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, group;
	stepvan_error error;
	if (expect(count, 3, 3, "group") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	const char *name = to_text(args[1]);
	if (name == NULL) {
		if (PyErr_Occurred() == NULL)
			must_be(args[1], "name", -1, "text without a 0 character");
		return NULL;
	}
	PyObject *tuple = to_tuple(args[2], "ranks");
	if (tuple == NULL)
		return NULL;
	Py_ssize_t n = PyTuple_Size(tuple);
	uint32_t *ranks = PyMem_Calloc((size_t)n + 1, sizeof *ranks);
	int failed = ranks == NULL;
	if (failed)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; !failed && i < n; i++)
		failed = to_rank(PyTuple_GetItem(tuple, i), &ranks[i], "ranks", i) < 0;
	failed = failed || check_on(node, "group", stepvan_group(node, name, ranks, (uint64_t)n, &group, &error), &error) < 0;
	PyMem_Free(ranks);
	Py_DECREF(tuple);
	return failed ? NULL : PyLong_FromUnsignedLongLong(group);
}

/* group_barrier(group) -> handle */
PyObject *group_barrier(PyObject *self, PyObject *number)
{
	uint64_t group, handle;
	stepvan_error error;
	if (to_u64(number, &group, "group") < 0 || check(stepvan_group_barrier(group, &handle, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(handle);
}

/* group_all_gather(group, bytes) -> handle */
PyObject *group_all_gather(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t group, handle;
	stepvan_error error;
	char *data;
	Py_ssize_t size;
	if (expect(count, 2, 2, "group_all_gather") < 0 || to_u64(args[0], &group, "group") < 0)
		return NULL;
	if (!PyBytes_Check(args[1])) {
		must_be(args[1], "data", -1, "bytes");
		return NULL;
	}
	if (PyBytes_AsStringAndSize(args[1], &data, &size) < 0 || check(stepvan_group_all_gather(group, data, (uint64_t)size, &handle, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(handle);
}

/* An operation of a group on one or two views. */
typedef struct collecting {
	uint64_t group, merge;
	uint32_t root;
	stepvan_view x, into;
	int has_into;
	PyObject *owner; /* of room for two */
} collecting;

/* Reads a tensor into a view, and keeps it with the others of the operation. */
static int collecting_view(collecting *c, PyObject *tensor, const char *name, int write, stepvan_view *view, Py_ssize_t index)
{
	operand as = {name, -1, write, view->strides};
	PyObject *holder;
	if (strided_of(tensor, &as, view, &holder) < 0)
		return -1;
	return PyTuple_SetItem(c->owner, index, holder);
}

/* Begins the operation. The owner must be there. */
static PyObject *collect_views(collecting *c, int reduces)
{
	stepvan_error error;
	uint64_t handle;
	uintptr_t owner = (uintptr_t)c->owner;
	int32_t code = reduces ? stepvan_group_reduce(c->group, &c->x, c->has_into ? &c->into : NULL, (uint32_t)c->merge, c->root, owner, &handle, &error)
	                       : stepvan_group_broadcast(c->group, &c->x, c->root, owner, &handle, &error);
	if (check(code, &error) < 0) {
		Py_DECREF(c->owner);
		return NULL;
	}
	owner_settle(c->owner); /* the library holds it until stepvan_released */
	PyObject *result = PyLong_FromUnsignedLongLong(handle);
	collect_released();
	return result;
}

/* group_broadcast(group, tensor, root, whether this member gets the elements) -> handle */
PyObject *group_broadcast(PyObject *self, arguments args, Py_ssize_t count)
{
	collecting c = {0};
	if (expect(count, 4, 4, "group_broadcast") < 0 || to_u64(args[0], &c.group, "group") < 0 || to_rank(args[2], &c.root, "root", -1) < 0)
		return NULL;
	c.owner = PyTuple_New(1); /* before the tensor is read: to allocate objects may end others */
	if (c.owner == NULL || collecting_view(&c, args[1], "x", args[3] == Py_True, &c.x, 0) < 0) {
		Py_XDECREF(c.owner);
		return NULL;
	}
	return collect_views(&c, 0);
}

/* group_reduce(group, tensor, tensor for the result or None, merge, root) -> handle */
PyObject *group_reduce(PyObject *self, arguments args, Py_ssize_t count)
{
	collecting c = {0};
	if (expect(count, 5, 5, "group_reduce") < 0 || to_u64(args[0], &c.group, "group") < 0 || to_u64(args[3], &c.merge, "merge") < 0 ||
	    to_rank(args[4], &c.root, "root", -1) < 0)
		return NULL;
	c.has_into = args[2] != Py_None;
	c.owner = PyTuple_New(1 + c.has_into);
	if (c.owner == NULL || collecting_view(&c, args[1], "x", 0, &c.x, 0) < 0 ||
	    (c.has_into && collecting_view(&c, args[2], "into", 1, &c.into, 1) < 0)) {
		Py_XDECREF(c.owner);
		return NULL;
	}
	return collect_views(&c, 1);
}

/* What one member has given. New reference. */
static PyObject *gathered_of(uint64_t node, uint64_t handle, uint64_t member)
{
	stepvan_error error;
	uint64_t size;
	int32_t code = stepvan_gathered(node, handle, member, NULL, 0, &size, &error);
	if (code != STEPVAN_TOO_SMALL)
		return check_on(node, "all_gather", code, &error) < 0 ? NULL : PyBytes_FromStringAndSize(NULL, 0);
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	if (bytes != NULL && check_on(node, "all_gather", stepvan_gathered(node, handle, member, PyBytes_AsString(bytes), size, &size, &error), &error) < 0)
		replace(&bytes, NULL);
	return bytes;
}

/* gathered(node, handle, how many members) -> [bytes] */
PyObject *gathered(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handle, members;
	if (expect(count, 3, 3, "gathered") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &handle, "handle") < 0 ||
	    to_u64(args[2], &members, "members") < 0)
		return NULL;
	PyObject *list = PyList_New((Py_ssize_t)members);
	for (uint64_t i = 0; list != NULL && i < members; i++) {
		PyObject *bytes = gathered_of(node, handle, i);
		if (bytes == NULL || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* group_close(group) */
PyObject *group_close(PyObject *self, PyObject *number)
{
	uint64_t group;
	stepvan_error error;
	if (to_u64(number, &group, "group") < 0 || check(stepvan_group_close(group, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* group_forget(group) */
PyObject *group_forget(PyObject *self, PyObject *number)
{
	uint64_t group;
	stepvan_error error;
	if (to_u64(number, &group, "group") < 0 || check(stepvan_group_forget(group, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}
