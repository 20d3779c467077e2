/* Agents of the tensor bus. */
#include "core.h"

/* agent(node, path, queue) -> agent */
PyObject *bus_agent(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, queue, agent;
	stepvan_error error;
	if (expect(count, 3, 3, "agent") < 0 || to_u64(args[0], &node, "node") < 0 || to_u64(args[2], &queue, "queue") < 0)
		return NULL;
	const char *path = to_text(args[1]);
	if (path == NULL) {
		if (PyErr_Occurred() == NULL)
			must_be(args[1], "path", -1, "text without a 0 character");
		return NULL;
	}
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_agent(node, path, queue, &agent, &error);
	Py_END_ALLOW_THREADS
	return check_on(node, "agent", code, &error) < 0 ? NULL : PyLong_FromUnsignedLongLong(agent);
}

/* agent_close(agent, timeout) */
PyObject *bus_agent_close(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t agent;
	int64_t limit;
	stepvan_error error;
	if (expect(count, 2, 2, "agent_close") < 0 || to_u64(args[0], &agent, "agent") < 0 || to_limit(args[1], &limit) < 0)
		return NULL;
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_agent_close(agent, limit, &error);
	Py_END_ALLOW_THREADS
	if (check(code, &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}
