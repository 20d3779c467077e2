/* Nodes: start, stop, barrier, and their properties. */
#include "core.h"

typedef struct {
	const stepvan_setting *settings;
	uint64_t count, node;
} starting;

/* Starts a node; later calls continue the wait. */
static int32_t start(void *call, int64_t slice, stepvan_error *error)
{
	starting *s = call;
	return s->node == 0 ? stepvan_start(s->settings, s->count, slice, &s->node, error) : stepvan_start_wait(s->node, slice, error);
}

static void wrong_setting(PyObject *name, PyObject *value)
{
	PyObject *key = quoted(name, 0), *text = key == NULL ? NULL : quoted(value, 0);
	if (text != NULL)
		raise_invalid("settings[%U] is %U: names are text, and values text, or None to unset", key, text);
	Py_XDECREF(key);
	Py_XDECREF(text);
}

/* The settings of a dict, which owns the texts. The array is for PyMem_Free. */
static stepvan_setting *settings_of(PyObject *dict)
{
	stepvan_setting *settings = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof(stepvan_setting));
	if (settings == NULL) {
		PyErr_NoMemory();
		return NULL;
	}
	PyObject *name, *value;
	Py_ssize_t at = 0;
	for (stepvan_setting *s = settings; PyDict_Next(dict, &at, &name, &value); s++) {
		s->name = to_text(name);
		s->value = value == Py_None ? NULL : to_text(value);
		if (s->name == NULL || (s->value == NULL && value != Py_None)) {
			if (PyErr_Occurred() == NULL)
				wrong_setting(name, value);
			PyMem_Free(settings);
			return NULL;
		}
	}
	return settings;
}

/* start({name: value}, timeout) -> node. A failed start closes the node. */
PyObject *node_start(PyObject *self, arguments args, Py_ssize_t count)
{
	int64_t limit;
	if (expect(count, 2, 2, "start") < 0 || to_limit(args[1], &limit) < 0 || library_load("init() or Node()") < 0)
		return NULL;
	PyObject *dict = PyDict_Copy(args[0]);
	if (dict == NULL)
		return NULL;
	stepvan_setting *settings = settings_of(dict);
	starting s = {settings, (uint64_t)PyDict_Size(dict), 0};
	int failed = settings == NULL ? -1 : wait_for(start, &s, limit);
	PyMem_Free(settings);
	Py_DECREF(dict);
	if (failed == 0) {
		storages_begin(s.node);
		return PyLong_FromUnsignedLongLong(s.node);
	}
	if (s.node != 0) {
		Py_BEGIN_ALLOW_THREADS
		stepvan_close(s.node, NULL);
		Py_END_ALLOW_THREADS
	}
	return NULL;
}

static int32_t stop(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_stop(*(uint64_t *)call, slice, error);
}

/* stop(node, timeout) */
PyObject *node_stop(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	int64_t limit;
	if (expect(count, 2, 2, "stop") < 0 || to_u64(args[0], &node, "node") < 0 || to_limit(args[1], &limit) < 0 || wait_on(node, "stop", stop, &node, limit) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* Counters of closes of nodes. They change only with the interpreter lock held. */
uint64_t closes_begun, closes_ended;

/* close(node) */
PyObject *node_close(PyObject *self, PyObject *number)
{
	uint64_t node;
	stepvan_error error;
	int32_t code;
	if (to_u64(number, &node, "node") < 0)
		return NULL;
	closes_begun++;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_close(node, &error);
	Py_END_ALLOW_THREADS
	closes_ended++;
	storages_end(node);
	if (check(code, &error) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* info(node) -> (role, worker rank, server rank, servers, workers, root port) */
PyObject *node_info(PyObject *self, PyObject *number)
{
	uint64_t node;
	stepvan_error error;
	stepvan_node_info i;
	if (to_u64(number, &node, "node") < 0 || check_on(node, "info", stepvan_info(node, &i, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(IiiIII)", i.role, i.worker_rank, i.server_rank, i.servers, i.workers, i.root_port);
}

static PyObject *peer_list(const stepvan_peer *peers, uint64_t count)
{
	PyObject *list = PyList_New((Py_ssize_t)count);
	for (uint64_t i = 0; list != NULL && i < count; i++) {
		const stepvan_peer *p = &peers[i];
		PyObject *peer = Py_BuildValue("(Iiiiisss)", p->role, p->rank, p->node_rank, p->instance, p->pid, p->host, p->van, p->reason);
		if (peer == NULL || PyList_SetItem(list, (Py_ssize_t)i, peer) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* peer_info(node) -> (rank, size) */
PyObject *node_peer_info(PyObject *self, PyObject *number)
{
	uint64_t node;
	uint32_t rank, size;
	stepvan_error error;
	if (to_u64(number, &node, "node") < 0 || check_on(node, "peer", stepvan_peer_info(node, &rank, &size, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(II)", rank, size);
}

/* peers(node) -> [(role, rank, node rank, instance, pid, host, van, reason)] */
PyObject *node_peers(PyObject *self, PyObject *number)
{
	uint64_t node, count = 16, capacity;
	stepvan_error error;
	if (to_u64(number, &node, "node") < 0)
		return NULL;
	stepvan_peer *peers = NULL;
	int32_t code;
	do {
		capacity = count;
		PyMem_Free(peers);
		peers = PyMem_Calloc(capacity + 1, sizeof(stepvan_peer));
		if (peers == NULL)
			return PyErr_NoMemory();
		code = stepvan_peers(node, peers, capacity, &count, &error);
	} while (code == STEPVAN_TOO_SMALL);
	PyObject *list = check_on(node, "peers", code, &error) < 0 ? NULL : peer_list(peers, count);
	PyMem_Free(peers);
	return list;
}

/* health(node): raises the reason when the cluster has failed. */
PyObject *node_health(PyObject *self, PyObject *number)
{
	uint64_t node;
	stepvan_error error;
	if (to_u64(number, &node, "node") < 0 || check_on(node, "check", stepvan_health(node, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

typedef struct {
	uint64_t node;
	uint32_t groups;
	int32_t per_instance;
} meeting;

static int32_t meet(void *call, int64_t slice, stepvan_error *error)
{
	meeting *m = call;
	return stepvan_barrier(m->node, m->groups, m->per_instance, slice, error);
}

/* The groups that a flag stands for, or -1 with an exception. */
static int group_if(PyObject *flag, uint32_t group, uint32_t *groups)
{
	int on = PyObject_IsTrue(flag);
	if (on > 0)
		*groups |= group;
	return on;
}

/* barrier(node, workers, servers, peers, scheduler, per_instance, timeout) */
PyObject *node_barrier(PyObject *self, arguments args, Py_ssize_t count)
{
	meeting m;
	int64_t limit;
	m.groups = 0;
	if (expect(count, 7, 7, "barrier") < 0 || to_u64(args[0], &m.node, "node") < 0 || to_limit(args[6], &limit) < 0)
		return NULL;
	if (group_if(args[1], STEPVAN_WORKER, &m.groups) < 0 || group_if(args[2], STEPVAN_SERVER, &m.groups) < 0 ||
	        group_if(args[3], STEPVAN_PEER, &m.groups) < 0)
		return NULL;
	if (m.groups == 0)
		return raise_invalid("barrier: neither workers nor servers nor peers take part: say True for one of them at least");
	m.per_instance = PyObject_IsTrue(args[5]);
	if (m.per_instance < 0 || group_if(args[4], STEPVAN_SCHEDULER, &m.groups) < 0)
		return NULL;
	if (wait_on(m.node, "barrier", meet, &m, limit) < 0)
		return NULL;
	Py_RETURN_NONE;
}
