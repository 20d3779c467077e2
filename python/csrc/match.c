/* Parts of tensors, and plans by names. */
#include "core.h"

#include <stdlib.h>

/* The numbers of a shape. The array is for PyMem_Free. */
static int64_t *to_shape(PyObject *object, Py_ssize_t *rank, const char *what)
{
	PyObject *tuple = to_tuple(object, what);
	if (tuple == NULL)
		return NULL;
	*rank = PyTuple_Size(tuple);
	int64_t *at = PyMem_Calloc((size_t)*rank + 1, sizeof *at);
	if (at == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; at != NULL && i < *rank; i++) {
		if (to_i64(PyTuple_GetItem(tuple, i), &at[i], what) < 0) {
			PyMem_Free(at);
			at = NULL;
		}
	}
	Py_DECREF(tuple);
	return at;
}

/* A bytes object with what the library has written. */
static PyObject *taken(const stepvan_bytes *part, int32_t code, const stepvan_error *error)
{
	if (check(code, error) < 0)
		return NULL;
	PyObject *bytes = PyBytes_FromStringAndSize(part->data, (Py_ssize_t)part->bytes);
	free((void *)part->data);
	return bytes;
}

/* The numbers of a list of tuples with `each` of them, one after another. For PyMem_Free. */
static int64_t *to_rows(PyObject *object, Py_ssize_t each, Py_ssize_t *count, const char *what)
{
	PyObject *tuple = to_tuple(object, what);
	if (tuple == NULL)
		return NULL;
	*count = PyTuple_Size(tuple);
	int64_t *at = PyMem_Calloc((size_t)(*count * each) + 1, sizeof *at);
	int failed = at == NULL;
	if (failed)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; !failed && i < *count; i++) {
		PyObject *row = to_tuple(PyTuple_GetItem(tuple, i), what);
		failed = row == NULL;
		if (!failed && PyTuple_Size(row) != each)
			failed = must_be(row, what, i, "one number more or less");
		for (Py_ssize_t k = 0; !failed && k < each; k++)
			failed = to_i64(PyTuple_GetItem(row, k), &at[i * each + k], what) < 0;
		Py_XDECREF(row);
	}
	Py_DECREF(tuple);
	if (!failed)
		return at;
	PyMem_Free(at);
	return NULL;
}

/* part_of_spans(shape, [(start, stop, local)] of all dimensions, how many of each) -> bytes */
PyObject *part_of_spans(PyObject *self, arguments args, Py_ssize_t count)
{
	Py_ssize_t rank = 0, spans = 0, counted = 0;
	uint64_t total = 0;
	stepvan_bytes part;
	stepvan_error error;
	PyObject *result = NULL;
	if (expect(count, 3, 3, "part_of_spans") < 0 || library_load("a part") < 0)
		return NULL;
	int64_t *shape = to_shape(args[0], &rank, "shape");
	int64_t *at = shape != NULL ? to_rows(args[1], 3, &spans, "spans") : NULL;
	uint64_t *counts = at != NULL ? to_numbers(args[2], &counted, "counts") : NULL;
	uint32_t *narrow = (uint32_t *)counts;
	for (Py_ssize_t i = 0; counts != NULL && i < counted; i++) {
		uint32_t n = (uint32_t)counts[i];
		total += counts[i];
		memcpy(&narrow[i], &n, sizeof n);
	}
	if (counts != NULL && (counted != rank || total != (uint64_t)spans))
		raise_invalid("spans of %zd dimensions for a shape of %zd: give a list for each", counted, rank);
	else if (counts != NULL)
		result = taken(&part, stepvan_part_of_spans(shape, (uint32_t)rank, (const stepvan_span *)at, narrow, &part, &error), &error);
	PyMem_Free(counts);
	PyMem_Free(at);
	PyMem_Free(shape);
	return result;
}

/* part_of_mesh(shape, mesh, [(kind, dim, factor)], index) -> bytes */
PyObject *part_of_mesh(PyObject *self, arguments args, Py_ssize_t count)
{
	Py_ssize_t rank = 0, dims = 0, placed = 0;
	uint64_t index;
	stepvan_bytes part;
	stepvan_error error;
	PyObject *result = NULL;
	if (expect(count, 4, 4, "part_of_mesh") < 0 || library_load("a part") < 0 || to_u64(args[3], &index, "index") < 0)
		return NULL;
	int64_t *shape = to_shape(args[0], &rank, "shape");
	int64_t *mesh = shape != NULL ? to_shape(args[1], &dims, "mesh") : NULL;
	int64_t *rows = mesh != NULL ? to_rows(args[2], 3, &placed, "placements") : NULL;
	if (rows != NULL && placed != dims)
		raise_invalid("placements has %zd placements for a mesh of %zd dimensions: give one for each", placed, dims);
	uint32_t *narrow = rows != NULL && placed == dims ? PyMem_Calloc((size_t)dims + 1, sizeof *narrow) : NULL;
	stepvan_placement *placements = narrow != NULL ? PyMem_Calloc((size_t)dims + 1, sizeof *placements) : NULL;
	if (placements == NULL && PyErr_Occurred() == NULL)
		PyErr_NoMemory();
	int failed = placements == NULL;
	for (Py_ssize_t i = 0; !failed && i < dims; i++) {
		const int64_t *row = &rows[3 * i];
		failed = mesh[i] < 0 || mesh[i] > INT32_MAX || row[1] < 0 || row[1] > INT32_MAX || row[2] < 0 || row[2] > INT32_MAX;
		if (failed)
			raise_invalid("mesh and placements: dimension %zd is out of range: give sizes, dimensions and factors from 0 on", i);
		narrow[i] = (uint32_t)mesh[i];
		placements[i] = (stepvan_placement){(uint32_t)row[0], (uint32_t)row[1], (uint32_t)row[2]};
	}
	if (!failed)
		result = taken(&part, stepvan_part_of_mesh(shape, (uint32_t)rank, narrow, placements, (uint32_t)dims, index, &part, &error), &error);
	PyMem_Free(placements);
	PyMem_Free(narrow);
	PyMem_Free(rows);
	PyMem_Free(mesh);
	PyMem_Free(shape);
	return result;
}

/* part_of_partition(shape, (dim, stride, world, expert dim, expert world), sizes, number) -> bytes */
PyObject *part_of_partition(PyObject *self, arguments args, Py_ssize_t count)
{
	Py_ssize_t rank = 0, fields = 0, sizes = 0;
	uint64_t number;
	stepvan_bytes part;
	stepvan_error error;
	PyObject *result = NULL;
	if (expect(count, 4, 4, "part_of_partition") < 0 || library_load("a part") < 0 || to_u64(args[3], &number, "number") < 0)
		return NULL;
	int64_t *shape = to_shape(args[0], &rank, "shape");
	uint64_t *of = shape != NULL ? to_numbers(args[1], &fields, "partition") : NULL;
	int64_t *list = of != NULL ? to_shape(args[2], &sizes, "sizes") : NULL;
	int failed = list == NULL;
	for (Py_ssize_t i = 0; !failed && i < fields; i++) {
		failed = of[i] > INT32_MAX;
		if (failed)
			raise_invalid("partition: a number is out of range (got %llu)", (unsigned long long)of[i]);
	}
	if (!failed && fields == 5) {
		stepvan_partition p = {(uint32_t)of[0], (uint32_t)of[1], (uint32_t)of[2], (uint32_t)of[3], (uint32_t)of[4], (uint32_t)sizes, list};
		result = taken(&part, stepvan_part_of_partition(shape, (uint32_t)rank, &p, number, &part, &error), &error);
	} else if (!failed) {
		PyErr_SetString(PyExc_TypeError, "_core.part_of_partition takes five numbers");
	}
	PyMem_Free(list);
	PyMem_Free(of);
	PyMem_Free(shape);
	return result;
}

static PyObject *tuple_of(const int64_t *at, uint32_t count)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)count);
	for (uint32_t i = 0; tuple != NULL && i < count; i++) {
		PyObject *n = PyLong_FromLongLong(at[i]);
		if (n == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, n) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

static int to_part(PyObject *object, stepvan_bytes *part)
{
	char *data;
	Py_ssize_t size;
	if (!PyBytes_Check(object))
		return must_be(object, "part", -1, "bytes");
	if (PyBytes_AsStringAndSize(object, &data, &size) < 0)
		return -1;
	part->data = data;
	part->bytes = (uint64_t)size;
	return 0;
}

/* part_shape(part) -> (shape of the whole tensor, shape of the part) */
PyObject *part_shape(PyObject *self, PyObject *object)
{
	stepvan_bytes part;
	stepvan_error error;
	int64_t shape[STEPVAN_MAX_RANK], local[STEPVAN_MAX_RANK];
	uint32_t rank;
	if (library_load("a part") < 0 || to_part(object, &part) < 0 || check(stepvan_part_shape(&part, shape, local, &rank, &error), &error) < 0)
		return NULL;
	PyObject *whole = tuple_of(shape, rank), *mine = whole != NULL ? tuple_of(local, rank) : NULL;
	if (mine == NULL) {
		Py_XDECREF(whole);
		return NULL;
	}
	return Py_BuildValue("(NN)", whole, mine);
}

/* The tensors of one direction. The array is for PyMem_Free. */
static stepvan_named *to_named(PyObject *views, PyObject *parts, Py_ssize_t *count)
{
	*count = views_count(views);
	if (*count < 0 || !PyTuple_Check(parts) || PyTuple_Size(parts) != *count) {
		if (*count >= 0)
			PyErr_SetString(PyExc_TypeError, "_core.match takes a tuple with a part for each view");
		return NULL;
	}
	stepvan_named *all = PyMem_Calloc((size_t)*count + 1, sizeof *all);
	if (all == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; all != NULL && i < *count; i++) {
		PyObject *part = PyTuple_GetItem(parts, i);
		all[i].view = *views_at(views, i);
		all[i].name = views_name(views, i);
		if (all[i].name == NULL || (part != Py_None && to_part(part, &all[i].part) < 0)) {
			PyMem_Free(all);
			all = NULL;
		}
	}
	return all;
}

/*
 * match(node, group, name, views of the sends, their parts, views of the receives, their parts, timeout, replicas)
 * -> plan.
 * A part is bytes, or None for a whole tensor. The plan is the handle of its agreement.
 */
PyObject *peer_match(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, group, number;
	int64_t limit;
	stepvan_error error;
	Py_ssize_t send_count = 0, recv_count = 0;
	if (expect(count, 9, 9, "match") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &group, "group") < 0 || to_limit(args[7], &limit) < 0)
		return NULL;
	const char *name = to_text(args[2]);
	if (name == NULL) {
		if (PyErr_Occurred() == NULL)
			must_be(args[2], "name", -1, "text without a 0 character");
		return NULL;
	}
	PyObject *owner = PyTuple_Pack(2, args[3], args[5]);
	stepvan_named *sends = owner != NULL ? to_named(args[3], args[4], &send_count) : NULL;
	stepvan_named *recvs = sends != NULL ? to_named(args[5], args[6], &recv_count) : NULL;
	int failed = recvs == NULL;
	if (!failed) {
		const uint32_t flags = args[8] == Py_True ? STEPVAN_PLAN_REPLICAS : 0;
		int32_t code;
		Py_BEGIN_ALLOW_THREADS
		code = stepvan_match_with(group, name, sends, (uint64_t)send_count, recvs, (uint64_t)recv_count, flags, (uintptr_t)owner, limit, &number, &error);
		Py_END_ALLOW_THREADS
		failed = check_on(node, "match", code, &error) < 0;
	}
	PyMem_Free(sends);
	PyMem_Free(recvs);
	if (failed) {
		Py_XDECREF(owner);
		return NULL;
	}
	collect_released();
	return PyLong_FromUnsignedLongLong(number);
}
