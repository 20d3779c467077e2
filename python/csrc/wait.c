/* Calls that wait. */
#include "core.h"

#include <time.h>

/* How long a wait may last before signals are handled: the delay of Ctrl-C at most. */
#define SLICE INT64_C(100000000)

static int64_t monotonic(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * Makes a call that waits, without the interpreter lock, for limit_ns at most (below 0: for ever). It waits in
 * slices, between which signal handlers run. Returns 0, or -1 with the exception of the handler or of the call. A
 * call that ends within the first slice reads no clock.
 */
int wait_for(attempt function, void *call, int64_t limit_ns)
{
	return wait_on(0, NULL, function, call, limit_ns);
}

/* As wait_for, for a call on a node: check_on makes the errors. */
int wait_on(uint64_t node, const char *what, attempt function, void *call, int64_t limit_ns)
{
	stepvan_error error;
	int64_t deadline = 0;
	for (;;) {
		int64_t slice = limit_ns < 0 || limit_ns > SLICE ? SLICE : limit_ns;
		int32_t code;
		Py_BEGIN_ALLOW_THREADS
		code = function(call, slice, &error);
		Py_END_ALLOW_THREADS
		if (code != STEPVAN_TIMEOUT)
			return what != NULL ? check_on(node, what, code, &error) : check(code, &error);
		if (PyErr_CheckSignals() < 0)
			return -1;
		if (limit_ns < 0)
			continue;
		int64_t at = monotonic();
		if (deadline == 0)
			deadline = at + limit_ns - slice;
		limit_ns = deadline - at;
		if (limit_ns <= 0)
			return check(code, &error);
	}
}
