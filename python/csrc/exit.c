/* The end of a process that has not called stop. */
#define _DEFAULT_SOURCE /* on_exit */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t last;  /* the node to stop; 0: none */
static int64_t limit;  /* of the stop, in ns */

/*
 * Stops the node of a program that has ended well, and closes that of one that has not, which its peers take for dead. The
 * exit code tells which: Python does not tell its own functions what it exits with. Python is over here, the library is not.
 */
static void end(int status, void *unused)
{
	stepvan_error error;
	if (last == 0 || library_forked() != NULL)
		return;
	if (status == 0) {
		int32_t code = stepvan_stop(last, limit, &error);
		if (code == STEPVAN_TIMEOUT)
			fprintf(stderr, "stepvan: stop at exit: others have not stopped after %lld s: this process leaves without them\n", (long long)(limit / 1000000000));
		else if (code != STEPVAN_OK && code != STEPVAN_CLOSED)
			fprintf(stderr, "stepvan: stop at exit: %s\n", error.message);
	}
	stepvan_close(last, NULL);
}

/* stop_at_exit(node, timeout): the node ends in order when this process exits with 0. The last call counts. */
PyObject *stop_at_exit(PyObject *self, arguments args, Py_ssize_t count)
{
	static int registered;
	uint64_t node;
	int64_t within;
	if (expect(count, 2, 2, "stop_at_exit") < 0 || to_u64(args[0], &node, "node") < 0 || to_limit(args[1], &within) < 0)
		return NULL;
	if (!registered && on_exit(end, NULL) != 0)
		return PyErr_NoMemory();
	registered = 1;
	last = node;
	limit = within;
	Py_RETURN_NONE;
}
