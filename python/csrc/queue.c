/* Queues that tell event loops which operations have ended. */
#include "core.h"

/* queue_open() -> (queue, file descriptor) */
PyObject *queue_open(PyObject *self, PyObject *unused)
{
	uint64_t queue;
	int32_t fd;
	stepvan_error error;
	if (check(stepvan_queue_open(&queue, &fd, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(Ki)", (unsigned long long)queue, (int)fd);
}

/* queue_take(queue) -> [token] */
PyObject *queue_take(PyObject *self, PyObject *number)
{
	uint64_t queue, tokens[64], count = COUNT(tokens);
	stepvan_error error;
	if (to_u64(number, &queue, "queue") < 0)
		return NULL;
	PyObject *list = PyList_New(0);
	while (list != NULL && count == COUNT(tokens)) {
		if (check(stepvan_queue_take(queue, tokens, COUNT(tokens), &count, &error), &error) < 0) {
			Py_DECREF(list);
			return NULL;
		}
		for (uint64_t i = 0; list != NULL && i < count; i++) {
			PyObject *token = PyLong_FromUnsignedLongLong(tokens[i]);
			if (token == NULL || PyList_Append(list, token) < 0)
				Py_CLEAR(list);
			Py_XDECREF(token);
		}
	}
	return list;
}

/* queue_close(queue) */
PyObject *queue_close(PyObject *self, PyObject *number)
{
	uint64_t queue;
	stepvan_error error;
	if (to_u64(number, &queue, "queue") < 0 || check(stepvan_queue_close(queue, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

typedef int32_t (*notifier)(uint64_t node, uint64_t number, uint64_t queue, uint64_t token, stepvan_error *error);

static PyObject *ask(notifier function, arguments args, Py_ssize_t count, const char *name)
{
	uint64_t node, number, queue, token;
	stepvan_error error;
	if (expect(count, 4, 4, name) < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[1], &number, "handle") < 0 ||
	    to_u64(args[2], &queue, "queue") < 0 || to_u64(args[3], &token, "token") < 0 || check(function(node, number, queue, token, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* notify(node, handle, queue, token) */
PyObject *notify(PyObject *self, arguments args, Py_ssize_t count)
{
	return ask(stepvan_notify, args, count, "notify");
}

/* response_notify(node, response, queue, token) */
PyObject *response_notify(PyObject *self, arguments args, Py_ssize_t count)
{
	return ask(stepvan_response_notify, args, count, "response_notify");
}
