/* Answers. */
#include "core.h"

#include "names.h"

typedef struct {
	uint64_t node, response;
} sent;

/* Waits until the response is done. It ignores failures, as respond_copy without borrowed tensors does. */
static int32_t wait_done(void *call, int64_t slice, stepvan_error *error)
{
	const sent *s = call;
	int32_t code = stepvan_response_wait(s->node, s->response, slice, error);
	return code == STEPVAN_TIMEOUT ? code : STEPVAN_OK;
}

/*
 * The result of a call that has answered: the number of the response. With copies it returns Py_None when the tensors
 * are the caller's again, and waits for that where they are borrowed. New reference.
 */
static PyObject *answered(uint64_t node, uint64_t response, int copies, int32_t borrowed)
{
	sent s = {node, response};
	if (!copies)
		return PyLong_FromUnsignedLongLong(response);
	if (borrowed && wait_for(wait_done, &s, -1) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/*
 * Answers a request. Returns the response's number; None with copies. New reference. Budget: 500 ns for a torch
 * tensor.
 */
PyObject *answer(uint64_t node, uint64_t handler, PyObject *objects, int copies)
{
	uint64_t response, stream;
	int32_t borrowed = 0;
	stepvan_error error;
	tensors list;
	references kept;
	references_begin(&kept);
	uint64_t opened = storages_open();
	PyObject *owner = NULL, *result = NULL;
	if (tensors_of(&list, objects, "tensors", 0, &kept) == 0 && ((owner = references_owner(&kept)) != NULL || PyErr_Occurred() == NULL)) {
		storages_close(opened, &list);
		uint64_t n = (uint64_t)list.count, with = (uintptr_t)owner;
		int on = stream_of(list.at, list.count, &stream);
		int32_t code = 0;
		if (on > 0) {
			code = stepvan_respond_on(node, stream, handler, list.at, n, with, &response, &error);
			borrowed = 1;
		} else if (on == 0) {
			code = copies ? stepvan_respond_copy(node, handler, list.at, n, with, &response, &borrowed, &error)
			              : stepvan_respond(node, handler, list.at, n, with, &response, &error);
		}
		if (on >= 0 && check_on(node, "respond", code, &error) == 0) {
			if (!copies || borrowed)
				owner_settle(owner);
			result = answered(node, response, copies, borrowed);
		} else {
			Py_XDECREF(owner);
		}
	}
	tensors_done(&list);
	references_done(&kept);
	collect_released();
	return result;
}

/* respond(node, handler, tensors) -> response */
PyObject *respond(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handler;
	if (expect(count, 3, 3, "respond") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &handler, "handler") < 0)
		return NULL;
	return answer(node, handler, args[2], 0);
}

/* respond_copy(node, handler, tensors): the tensors are the caller's again when it returns */
PyObject *respond_copy(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, handler;
	if (expect(count, 3, 3, "respond") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &handler, "handler") < 0)
		return NULL;
	return answer(node, handler, args[2], 1);
}

/* The rows of an item of tensors_vec: a tensor, a list of tensors, of which the first counts, or a number. */
static int rows_of(PyObject *item, int64_t *rows, Py_ssize_t at)
{
	if (PyLong_Check(item))
		return to_i64(item, rows, "tensors_vec");
	PyObject *first = NULL;
	if (PyList_Check(item) || PyTuple_Check(item)) {
		if (PySequence_Size(item) < 1) {
			raise_invalid("tensors_vec[%zd] is empty: its first tensor tells how many rows answer the request", at);
			return -1;
		}
		first = PySequence_GetItem(item, 0);
		item = first;
	}
	PyObject *shape = item != NULL ? PyObject_GetAttr(item, name_shape) : NULL;
	Py_XDECREF(first);
	if (shape == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	int failed = 0;
	if (shape != NULL && PyTuple_Check(shape) && PyTuple_Size(shape) > 0)
		failed = to_i64(PyTuple_GetItem(shape, 0), rows, "tensors_vec");
	else
		failed = -2;
	Py_XDECREF(shape);
	if (failed == -2) {
		PyErr_Clear();
		raise_invalid("tensors_vec[%zd] has no first dimension, which tells how many rows answer the request", at);
	}
	return failed;
}

static int64_t *all_rows(PyObject *tuple, Py_ssize_t count)
{
	int64_t *rows = PyMem_Malloc(((size_t)count + 1) * sizeof(int64_t));
	if (rows == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; rows != NULL && i < count; i++) {
		if (rows_of(PyTuple_GetItem(tuple, i), &rows[i], i) < 0) {
			PyMem_Free(rows);
			rows = NULL;
		}
	}
	return rows;
}

static PyObject *send_rows(uint64_t node, PyObject *buffer, const int64_t *rows, const uint64_t *handlers, Py_ssize_t count, int copies)
{
	uint64_t response, stream;
	int32_t borrowed = 0;
	stepvan_error error;
	stepvan_tensor tensor;
	PyObject *holder;
	operand as = {"ret_buffer", -1, 0};
	if (tensor_of(buffer, &as, &tensor, &holder) < 0)
		return NULL;
	PyObject *owner = owner_of(holder);
	if (owner == NULL)
		return NULL;
	int shared = tensor.memory != 0;
	if (!shared && storages_wanted > 0)
		tensor.memory = storage_number(buffer, &tensor);
	uint64_t with = shared ? 0 : (uintptr_t)owner, n = (uint64_t)count;
	int on = stream_of(&tensor, 1, &stream), failed = -1;
	if (on > 0) {
		failed = check_on(node, "respond_vec", stepvan_respond_vec_on(node, stream, &tensor, rows, handlers, n, with, &response, &error), &error);
		borrowed = 1;
	} else if (on == 0) {
		int32_t code = copies ? stepvan_respond_vec_copy(node, &tensor, rows, handlers, n, with, &response, &borrowed, &error)
		                      : stepvan_respond_vec(node, &tensor, rows, handlers, n, with, &response, &error);
		failed = check_on(node, "respond_vec", code, &error);
	}
	if (failed < 0 || shared)
		Py_DECREF(owner);
	else if (!copies || borrowed)
		owner_settle(owner);
	return failed < 0 ? NULL : answered(node, response, copies, borrowed);
}

static PyObject *answer_rows(arguments args, Py_ssize_t count, int copies)
{
	uint64_t node;
	if (expect(count, 4, 4, "respond_vec") < 0 || to_u64(args[0], &node, "node") < 0)
		return NULL;
	Py_ssize_t n;
	PyObject *tuple = to_tuple(args[2], "tensors_vec"), *result = NULL;
	uint64_t *handlers = tuple != NULL ? to_numbers(args[3], &n, "handler_vec") : NULL;
	int64_t *rows = NULL;
	if (handlers != NULL && PyTuple_Size(tuple) != n)
		raise_invalid("%zd tensors_vec and %zd handler_vec: give one of each per request", PyTuple_Size(tuple), n);
	else if (handlers != NULL && n == 0)
		raise_invalid("respond_vec: handler_vec is empty: it must name at least one request");
	else if (handlers != NULL && (rows = all_rows(tuple, n)) != NULL)
		result = send_rows(node, args[1], rows, handlers, n, copies);
	PyMem_Free(rows);
	PyMem_Free(handlers);
	Py_XDECREF(tuple);
	collect_released();
	return result;
}

/* respond_vec(node, buffer, tensors_vec, handlers) -> response */
PyObject *respond_vec(PyObject *self, arguments args, Py_ssize_t count)
{
	return answer_rows(args, count, 0);
}

/* respond_vec_copy(node, buffer, tensors_vec, handlers): the buffer is the caller's again when it returns */
PyObject *respond_vec_copy(PyObject *self, arguments args, Py_ssize_t count)
{
	return answer_rows(args, count, 1);
}
