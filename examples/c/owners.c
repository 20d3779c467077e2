/*
 * Owners: when a program may free memory that the library uses. Workers push numbers from memory of malloc, eight
 * exchanges at a time, and one server answers them from memory of malloc. The program frees a piece of memory after it
 * has given it up and stepvan_released has returned its owner: either may come first. It is C11 and C++11.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepvan.h"

enum { ROUNDS = 400, IN_FLIGHT = 8, FLOATS = 1024, WORKERS = 64 };

static stepvan_error error;
static int lent; /* owners that the library has, and will give back */

static void must(const char *what, int32_t code)
{
	if (code == STEPVAN_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, stepvan_code_name(code), error.message);
	exit(1);
}

/* What one operation uses. The address of a piece is its owner. */
typedef struct piece {
	int users; /* the program, and the library while it has the owner */
	float push[FLOATS];
	float pull[FLOATS];
} piece;

static piece *new_piece(void)
{
	piece *p = (piece *)malloc(sizeof *p);
	if (p == NULL)
		abort();
	p->users = 1;
	return p;
}

static void give_up(piece *p)
{
	if (--p->users == 0)
		free(p);
}

static uint64_t owner_of(const piece *p) { return (uint64_t)(uintptr_t)p; }

/* A tensor in a piece. Its memory is 0, so the library returns the owner when it uses the piece no more. */
static stepvan_tensor floats(float *data)
{
	stepvan_tensor t;
	memset(&t, 0, sizeof t);
	t.data = data;
	t.bytes = FLOATS * sizeof(float);
	t.dtype = STEPVAN_FLOAT32;
	t.rank = 1;
	t.shape[0] = FLOATS;
	return t;
}

/* Takes back what the library uses no more. It costs next to nothing where there is nothing to free. */
static void collect(void)
{
	uint64_t owners[32], n;
	while ((n = stepvan_released(owners, 32)) > 0)
		for (uint64_t i = 0; i < n; i++, lent--)
			give_up((piece *)(uintptr_t)owners[i]);
}

/* Notes that a call has taken the piece as its owner. A call that fails has not taken it. */
static void taken(const char *what, int32_t code, piece *p)
{
	must(what, code);
	p->users++;
	lent++;
}

static piece *ask(uint64_t node, int round, uint64_t *handle)
{
	piece *p = new_piece();
	for (int i = 0; i < FLOATS; i++)
		p->push[i] = (float)(round + i);
	const stepvan_tensor push = floats(p->push), pull = floats(p->pull);
	const uint64_t push_key = (uint64_t)(round % IN_FLIGHT), pull_key = 100;
	stepvan_exchange exchange;
	memset(&exchange, 0, sizeof exchange);
	exchange.push = &push;
	exchange.push_keys = &push_key;
	exchange.pushes = 1;
	exchange.pull = &pull;
	exchange.pull_keys = &pull_key;
	exchange.pulls = 1;
	exchange.owner = owner_of(p);

	taken("stepvan_push_pull", stepvan_push_pull(node, &exchange, handle, &error), p);
	return p;
}

/* Waits for an exchange, and looks at its answer: the piece is still there, since the program has not given it up. */
static void finish(uint64_t node, uint64_t handle, piece *p)
{
	must("stepvan_wait", stepvan_wait(node, handle, -1, &error));
	for (int i = 0; i < FLOATS; i++)
		if (p->pull[i] != 2 * p->push[i]) {
			fprintf(stderr, "number %d is wrong\n", i);
			exit(1);
		}
	give_up(p);
}

static void work(uint64_t node)
{
	uint64_t handles[IN_FLIGHT];
	piece *pieces[IN_FLIGHT];
	for (int round = 0; round < ROUNDS + IN_FLIGHT; round++) {
		int slot = round % IN_FLIGHT;
		if (round >= IN_FLIGHT)
			finish(node, handles[slot], pieces[slot]);
		if (round < ROUNDS)
			pieces[slot] = ask(node, round, &handles[slot]);
		collect();
	}
}

/* Answers a request from a piece, and gives it up at once: the library sends it later. */
static void answer(uint64_t node, uint64_t handler, const stepvan_tensor *push)
{
	piece *p = new_piece();
	for (int i = 0; i < FLOATS; i++)
		p->pull[i] = 2 * ((const float *)push->data)[i];
	const stepvan_tensor pull = floats(p->pull);
	taken("stepvan_respond", stepvan_respond(node, handler, &pull, 1, owner_of(p), NULL, &error), p);
	give_up(p);
}

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

	int32_t code;
	while ((code = stepvan_get_batch(node, STEPVAN_POLICY_DEFAULT, 0, -1, &batch, &error)) == STEPVAN_OK) {
		for (uint64_t i = 0; i < batch.requests_count; i++)
			answer(node, requests[i].handler, &push[requests[i].first_push]);
		collect();
	}
	if (code != STEPVAN_CLOSED) /* every worker has left */
		must("stepvan_get_batch", code);
}

int main(void)
{
	uint64_t node;
	stepvan_node_info info;
	must("stepvan_start", stepvan_start(NULL, 0, -1, &node, &error));
	must("stepvan_info", stepvan_info(node, &info, &error));
	if (info.role == STEPVAN_WORKER)
		work(node);
	else if (info.role == STEPVAN_SERVER)
		serve(node);
	must("stepvan_stop", stepvan_stop(node, -1, &error));
	must("stepvan_close", stepvan_close(node, &error));
	collect();
	if (lent != 0) {
		fprintf(stderr, "%d owners have not come back\n", lent);
		return 1;
	}
	return 0;
}
