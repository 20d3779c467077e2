/*
 * One program that is a scheduler, a worker or a server, as its environment says: the
 * whole of stepvan's C interface in use. A worker pushes numbers; the server answers with
 * their doubles, computed where the worker waits for them. It is C11 and C++11.
 *
 *     make capi
 *     cc -I capi examples/c/exchange.c -L build -lstepvan -Wl,-rpath,$PWD/build -o build/exchange
 *     bin/stepvan launch -n 2w1s -- build/exchange
 *
 * launch brings a scheduler of its own; with DMLC_ROLE=scheduler this program is one, too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepvan.h"

enum { ROUNDS = 200, FLOATS = 4096, WORKERS = 64 };

#define SECOND INT64_C(1000000000)
#define PUSH_KEY UINT64_C(1)
#define PULL_KEY UINT64_C(2)

static stepvan_error error;

/* must ends the program when a call has failed. The library itself never does. */
static void must(const char *what, int32_t code)
{
	if (code == STEPVAN_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, stepvan_code_name(code), error.message);
	exit(1);
}

static stepvan_tensor floats(void *data, uint64_t memory)
{
	stepvan_tensor t;
	memset(&t, 0, sizeof t);
	t.data = data;
	t.bytes = FLOATS * sizeof(float);
	t.memory = memory;
	t.dtype = STEPVAN_FLOAT32;
	t.rank = 1;
	t.shape[0] = FLOATS;
	return t;
}

/* work pushes rows of numbers to every server, and checks their answers. */
static void work(uint64_t node, uint32_t servers)
{
	void *data;
	uint64_t memory, handle, rows = 1 + (uint64_t)servers;
	must("stepvan_alloc", stepvan_alloc(node, rows * FLOATS * sizeof(float), 0, &data, &memory, &error));
	float *numbers = (float *)data;

	stepvan_tensor push = floats(numbers, memory);
	stepvan_tensor *pull = (stepvan_tensor *)calloc(servers, sizeof *pull);
	uint64_t push_key = PUSH_KEY, *pull_keys = (uint64_t *)calloc(servers, sizeof *pull_keys);
	if (pull == NULL || pull_keys == NULL)
		abort();
	for (uint32_t s = 0; s < servers; s++) {
		pull[s] = floats(numbers + (s + 1) * FLOATS, memory);
		pull_keys[s] = PULL_KEY;
	}
	stepvan_exchange exchange;
	memset(&exchange, 0, sizeof exchange);
	exchange.push = &push;
	exchange.push_keys = &push_key;
	exchange.pushes = 1;
	exchange.pull = pull;
	exchange.pull_keys = pull_keys;
	exchange.pulls = servers; /* server-major: one of each */
	exchange.label = "doubles";

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < FLOATS; i++)
			numbers[i] = (float)(round + i);
		must("stepvan_push_pull", stepvan_push_pull(node, &exchange, &handle, &error));
		int32_t code;
		while ((code = stepvan_wait(node, handle, SECOND / 20, &error)) == STEPVAN_TIMEOUT)
			; /* here a program looks for signals */
		must("stepvan_wait", code);
		for (uint32_t i = 0; i < servers * FLOATS; i++)
			if (numbers[FLOATS + i] != 2 * numbers[i % FLOATS]) {
				fprintf(stderr, "round %d: number %" PRIu32 " is wrong\n", round, i);
				exit(1);
			}
	}
	int64_t stamps[STEPVAN_STAMPS];
	must("stepvan_trace", stepvan_trace(node, handle, stamps, &error));
	printf("worker: %d exchanges with %" PRIu32 " servers; the last took %" PRId64 " us\n", ROUNDS, servers, (stamps[7] - stamps[0]) / 1000);
	must("stepvan_free", stepvan_free(memory, &error));
	free(pull);
	free(pull_keys);
}

/* answer doubles what one worker has pushed, straight into the worker's memory where that can be reached. */
static void answer(uint64_t node, const stepvan_request *request, const stepvan_tensor *push)
{
	stepvan_tensor out;
	must("stepvan_request_out", stepvan_request_out(node, request->handler, 0, &out, &error));
	const float *in = (const float *)push->data;
	for (uint64_t i = 0; i < push->bytes / sizeof(float); i++)
		((float *)out.data)[i] = 2 * in[i];
	must("stepvan_respond", stepvan_respond(node, request->handler, &out, 1, 0, NULL, &error));
}

/* serve answers until every worker has left. */
static void serve(uint64_t node)
{
	static stepvan_request requests[WORKERS];
	static stepvan_tensor push[WORKERS], pull[WORKERS];
	static uint64_t push_keys[WORKERS], pull_keys[WORKERS];
	stepvan_batch batch;
	memset(&batch, 0, sizeof batch);
	batch.requests = requests;
	batch.push = push;
	batch.push_keys = push_keys;
	batch.pull = pull;
	batch.pull_keys = pull_keys;
	batch.request_capacity = batch.push_capacity = batch.pull_capacity = WORKERS;

	uint64_t answers = 0;
	for (;;) {
		int32_t code = stepvan_get_batch(node, STEPVAN_POLICY_DEFAULT, STEPVAN_VIEWS, SECOND / 20, &batch, &error);
		if (code == STEPVAN_TIMEOUT)
			continue;
		if (code == STEPVAN_CLOSED)
			break;
		must("stepvan_get_batch", code);
		for (uint64_t i = 0; i < batch.requests_count; i++, answers++)
			answer(node, &requests[i], &push[requests[i].first_push]);
	}
	printf("server: %" PRIu64 " answers\n", answers);
}

int main(void)
{
	uint64_t node;
	stepvan_node_info info;

	if (stepvan_abi_version() != STEPVAN_ABI_VERSION) {
		fprintf(stderr, "this program was compiled for another version of libstepvan.so\n");
		return 1;
	}
	must("stepvan_start", stepvan_start(NULL, 0, -1, &node, &error));
	must("stepvan_info", stepvan_info(node, &info, &error));
	if (info.role == STEPVAN_WORKER)
		work(node, info.servers);
	else if (info.role == STEPVAN_SERVER)
		serve(node);
	must("stepvan_stop", stepvan_stop(node, -1, &error));
	must("stepvan_close", stepvan_close(node, &error));
	return 0;
}
