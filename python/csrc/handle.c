/* Handles: how an exchange ended. */
#include "core.h"

typedef struct {
	uint64_t node, number;
} pair;

/* Arguments (node, number), and a limit where there is one. */
static int pair_of(pair *p, int64_t *limit, arguments args, Py_ssize_t count, const char *function)
{
	Py_ssize_t want = limit != NULL ? 3 : 2;
	if (expect(count, want, want, function) < 0 || to_u64(args[0], &p->node, "node") < 0 || to_u64(args[1], &p->number, "handle") < 0)
		return -1;
	return limit != NULL ? to_limit(args[2], limit) : 0;
}

static int32_t wait_handle(void *call, int64_t slice, stepvan_error *error)
{
	pair *p = call;
	return stepvan_wait(p->node, p->number, slice, error);
}

static int32_t wait_response(void *call, int64_t slice, stepvan_error *error)
{
	pair *p = call;
	return stepvan_response_wait(p->node, p->number, slice, error);
}

static PyObject *wait_pair(attempt function, arguments args, Py_ssize_t count, const char *name)
{
	pair p;
	int64_t limit;
	if (pair_of(&p, &limit, args, count, name) < 0)
		return NULL;
	collect_released();
	if (wait_on(p.node, name, function, &p, limit) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* wait(node, handle, timeout) */
PyObject *handle_wait(PyObject *self, arguments args, Py_ssize_t count)
{
	return wait_pair(wait_handle, args, count, "wait");
}

/* response_wait(node, response, timeout) */
PyObject *response_wait(PyObject *self, arguments args, Py_ssize_t count)
{
	return wait_pair(wait_response, args, count, "wait");
}

static PyObject *done(int32_t (*function)(uint64_t, uint64_t, int32_t *, stepvan_error *), arguments args, Py_ssize_t count, const char *name)
{
	pair p;
	int32_t is = 0;
	stepvan_error error;
	if (pair_of(&p, NULL, args, count, name) < 0 || check_on(p.node, name, function(p.node, p.number, &is, &error), &error) < 0)
		return NULL;
	return PyBool_FromLong(is);
}

/* done(node, handle) -> bool */
PyObject *handle_done(PyObject *self, arguments args, Py_ssize_t count)
{
	return done(stepvan_done, args, count, "done");
}

/* response_done(node, response) -> bool */
PyObject *response_done(PyObject *self, arguments args, Py_ssize_t count)
{
	return done(stepvan_response_done, args, count, "done");
}

/* operations(node, handle) -> count */
PyObject *handle_operations(PyObject *self, arguments args, Py_ssize_t count)
{
	pair p;
	uint64_t n;
	stepvan_error error;
	if (pair_of(&p, NULL, args, count, "operations") < 0 || check_on(p.node, "operations", stepvan_operations(p.node, p.number, &n, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(n);
}

static PyObject *numbers(const int64_t *at, uint64_t count)
{
	PyObject *list = PyList_New((Py_ssize_t)count);
	for (uint64_t i = 0; list != NULL && i < count; i++) {
		PyObject *n = PyLong_FromLongLong(at[i]);
		if (n == NULL || PyList_SetItem(list, (Py_ssize_t)i, n) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* trace(node, handle) -> 8 stamps */
PyObject *handle_trace(PyObject *self, arguments args, Py_ssize_t count)
{
	pair p;
	int64_t stamps[STEPVAN_STAMPS];
	stepvan_error error;
	if (pair_of(&p, NULL, args, count, "trace") < 0 || check_on(p.node, "trace", stepvan_trace(p.node, p.number, stamps, &error), &error) < 0)
		return NULL;
	return numbers(stamps, STEPVAN_STAMPS);
}

typedef int32_t (*filler)(uint64_t node, uint64_t handle, int64_t *at, uint64_t capacity, uint64_t *count, stepvan_error *error);

/* Calls a function that fills an array of items of `each` numbers, as often as it is too small. For PyMem_Free. */
static int64_t *fill(filler function, const char *name, const pair *p, uint64_t each, uint64_t *count)
{
	stepvan_error error;
	uint64_t capacity = 16;
	for (;;) {
		int64_t *at = PyMem_Malloc(capacity * each * sizeof(int64_t));
		if (at == NULL) {
			PyErr_NoMemory();
			return NULL;
		}
		int32_t code = function(p->node, p->number, at, capacity, count, &error);
		if (code == STEPVAN_OK)
			return at;
		PyMem_Free(at);
		if (code != STEPVAN_TOO_SMALL) {
			check_on(p->node, name, code, &error);
			return NULL;
		}
		capacity = *count;
	}
}

/* traces(node, handle) -> [8 stamps] by server */
PyObject *handle_traces(PyObject *self, arguments args, Py_ssize_t count)
{
	pair p;
	uint64_t n;
	if (pair_of(&p, NULL, args, count, "traces") < 0)
		return NULL;
	int64_t *stamps = fill(stepvan_traces, "traces", &p, STEPVAN_STAMPS, &n);
	if (stamps == NULL)
		return NULL;
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (uint64_t i = 0; list != NULL && i < n; i++) {
		PyObject *trace = numbers(stamps + i * STEPVAN_STAMPS, STEPVAN_STAMPS);
		if (trace == NULL || PyList_SetItem(list, (Py_ssize_t)i, trace) < 0)
			Py_CLEAR(list);
	}
	PyMem_Free(stamps);
	return list;
}

/* lengths(node, handle) -> bytes written, by pull */
PyObject *handle_lengths(PyObject *self, arguments args, Py_ssize_t count)
{
	pair p;
	uint64_t n;
	if (pair_of(&p, NULL, args, count, "lengths") < 0)
		return NULL;
	int64_t *lengths = fill(stepvan_lengths, "lengths", &p, 1, &n);
	PyObject *list = lengths != NULL ? numbers(lengths, n) : NULL;
	PyMem_Free(lengths);
	return list;
}
