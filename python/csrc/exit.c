/* The end of a process that has not called stop. */
#define _DEFAULT_SOURCE /* on_exit */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t last;  /* the node to stop; 0: none */
static int64_t limit;  /* of the stop, in ns */

/*
 * Stops the node if the program exits with 0; else closes it, and its peers see it die. Only on_exit passes the
 * exit code: Python does not pass it to its own exit functions. Python has ended when this runs; the library still
 * works.
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

/* stop_at_exit(node, timeout): stops the node when this process exits with 0. Only the last call counts. */
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
