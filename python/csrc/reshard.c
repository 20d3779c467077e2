/* Plans of stepvan.resharding: bytes in, bytes out. */
#include "core.h"

#include <stdlib.h>

/* The bytes of a bytes object. */
static int to_bytes(PyObject *object, stepvan_bytes *bytes, const char *what, Py_ssize_t index)
{
	char *data;
	Py_ssize_t size;
	if (!PyBytes_Check(object))
		return must_be(object, what, index, "bytes");
	if (PyBytes_AsStringAndSize(object, &data, &size) < 0)
		return -1;
	bytes->data = data;
	bytes->bytes = (uint64_t)size;
	return 0;
}

/* The bytes of all items of a tuple, which keeps them. The array is for PyMem_Free. */
static stepvan_bytes *to_rosters(PyObject *tuple, Py_ssize_t *count)
{
	*count = PyTuple_Size(tuple);
	stepvan_bytes *all = *count < 0 ? NULL : PyMem_Calloc((size_t)*count + 1, sizeof *all);
	if (all == NULL && *count >= 0)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; all != NULL && i < *count; i++) {
		if (to_bytes(PyTuple_GetItem(tuple, i), &all[i], "rosters", i) < 0) {
			PyMem_Free(all);
			all = NULL;
		}
	}
	return all;
}

/* The arguments of reshard_plan in C. */
typedef struct planning {
	PyObject *tuple;
	stepvan_bytes *rosters, *plans;
	uint64_t *numbers, world, batch_bytes;
	uint32_t *ranks, flags;
	Py_ssize_t count, plan_count;
} planning;

static int to_planning(planning *p, arguments args)
{
	p->tuple = to_tuple(args[0], "rosters");
	p->rosters = p->tuple != NULL ? to_rosters(p->tuple, &p->count) : NULL;
	if (p->rosters == NULL || to_u64(args[1], &p->world, "world") < 0 || to_u64(args[2], &p->batch_bytes, "batch_bytes") < 0)
		return -1;
	int cast = PyObject_IsTrue(args[3]);
	p->numbers = cast < 0 ? NULL : to_numbers(args[4], &p->plan_count, "ranks");
	if (p->numbers == NULL)
		return -1;
	p->flags = cast ? STEPVAN_RESHARD_CAST : 0;
	p->ranks = PyMem_Calloc((size_t)p->plan_count + 1, sizeof *p->ranks);
	p->plans = PyMem_Calloc((size_t)p->plan_count + 1, sizeof *p->plans);
	if (p->ranks == NULL || p->plans == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < p->plan_count; i++) {
		if (p->numbers[i] > INT32_MAX) {
			raise_invalid("ranks[%zd] is %llu: it must be from 0 to 2**31-1", i, (unsigned long long)p->numbers[i]);
			return -1;
		}
		p->ranks[i] = (uint32_t)p->numbers[i];
	}
	if (p->world > INT32_MAX) {
		raise_invalid("world is %llu: it must be from 0 to 2**31-1", (unsigned long long)p->world);
		return -1;
	}
	return 0;
}

static PyObject *plan(planning *p)
{
	stepvan_error error;
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_reshard_plan(p->rosters, (uint64_t)p->count, (uint32_t)p->world, p->batch_bytes, p->flags, p->ranks, (uint64_t)p->plan_count, p->plans, &error);
	Py_END_ALLOW_THREADS
	if (check(code, &error) < 0)
		return NULL;
	PyObject *list = PyList_New(p->plan_count);
	for (Py_ssize_t i = 0; list != NULL && i < p->plan_count; i++) {
		PyObject *one = PyBytes_FromStringAndSize(p->plans[i].data, (Py_ssize_t)p->plans[i].bytes);
		if (one == NULL || PyList_SetItem(list, i, one) < 0)
			replace(&list, NULL);
	}
	return list;
}

/* reshard_plan(rosters, world, batch_bytes, cast, ranks) -> the plans of the ranks */
PyObject *reshard_plan(PyObject *self, arguments args, Py_ssize_t count)
{
	planning p = {0};
	if (expect(count, 5, 5, "reshard_plan") < 0 || library_load("resharding") < 0)
		return NULL;
	PyObject *list = to_planning(&p, args) < 0 ? NULL : plan(&p);
	for (Py_ssize_t i = 0; p.plans != NULL && i < p.plan_count; i++)
		free((void *)p.plans[i].data);
	PyMem_Free(p.plans);
	PyMem_Free(p.ranks);
	PyMem_Free(p.numbers);
	PyMem_Free(p.rosters);
	Py_XDECREF(p.tuple);
	return list;
}

/* reshard_check(plan) raises ProtocolError unless it is one. */
PyObject *reshard_check(PyObject *self, PyObject *object)
{
	stepvan_bytes bytes;
	stepvan_error error;
	int32_t code;
	if (library_load("resharding") < 0 || to_bytes(object, &bytes, "plan", -1) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_reshard_check(bytes.data, bytes.bytes, &error);
	Py_END_ALLOW_THREADS
	if (check(code, &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* reshard_source(rosters, roster of the destination) -> the rank that it reads from */
PyObject *reshard_source(PyObject *self, arguments args, Py_ssize_t count)
{
	stepvan_bytes destination;
	stepvan_error error;
	uint32_t rank = 0;
	Py_ssize_t sources = 0;
	if (expect(count, 2, 2, "reshard_source") < 0 || library_load("resharding") < 0)
		return NULL;
	PyObject *tuple = to_tuple(args[0], "rosters");
	stepvan_bytes *rosters = tuple != NULL ? to_rosters(tuple, &sources) : NULL;
	int failed = rosters == NULL || to_bytes(args[1], &destination, "destination", -1) < 0 ||
	             check(stepvan_reshard_source(rosters, (uint64_t)sources, &destination, &rank, &error), &error) < 0;
	PyMem_Free(rosters);
	Py_XDECREF(tuple);
	return failed ? NULL : PyLong_FromUnsignedLong(rank);
}
