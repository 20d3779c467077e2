/*
 * Holds libstepvan.so to stepvan.h, in one process: wrong arguments at every function, numbers
 * that are gone, owners, views, queues, forks. It ends with 0, or names what is not so.
 * C11 and C++11.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stepvan.h"

#define SECOND INT64_C(1000000000)
#define MADE_UP UINT64_C(0xdeadbeef12345678)

static stepvan_error error;
static uint64_t scheduler, worker, server;

/* IS fails the program unless an expression has the value. */
#define IS(want, got) is(__LINE__, #got, (int64_t)(want), (int64_t)(got))

static void is(int line, const char *what, int64_t want, int64_t got)
{
	if (want == got)
		return;
	fprintf(stderr, "contract.c:%d: %s is %" PRId64 " and not %" PRId64 "; the last error: %s: %s\n", line, what, got, want,
	        stepvan_code_name(error.code), error.message);
	exit(1);
}

#define OK(call) IS(STEPVAN_OK, call)

/* REFUSED checks an error and that its struct says the same. */
#define REFUSED(want, call) \
	do { \
		memset(&error, 0, sizeof error); \
		IS(want, call); \
		IS(want, error.code); \
		IS(1, error.message[0] != 0); \
	} while (0)

static stepvan_tensor doubles(void *data, int64_t n)
{
	stepvan_tensor t;
	memset(&t, 0, sizeof t);
	t.data = data;
	t.bytes = (uint64_t)n * sizeof(double);
	t.dtype = STEPVAN_FLOAT64;
	t.rank = 1;
	t.shape[0] = n;
	return t;
}

/* STEPVAN_PANIC_AFTER and STEPVAN_PANIC_LOCKED of workers that start. */
static const char *panic_after, *panic_locked;

static uint64_t start(const char *role, const char *port)
{
	int rehearses = strcmp(role, "worker") == 0;
	const stepvan_setting settings[] = {
		{"DMLC_ROLE", role}, {"DMLC_NUM_WORKER", "1"}, {"DMLC_NUM_SERVER", "1"}, {"DMLC_LOCAL", "1"},
		{"DMLC_PS_ROOT_PORT", port}, {"STEPVAN_LOG_LEVEL", "error"}, {"STEPVAN_START_TIMEOUT", "60s"}, {"STEPVAN_VAN", NULL},
		{"STEPVAN_PANIC_AFTER", rehearses ? panic_after : NULL}, {"STEPVAN_PANIC_LOCKED", rehearses ? panic_locked : NULL},
	};
	uint64_t node = 0;
	IS(STEPVAN_TIMEOUT, stepvan_start(settings, sizeof settings / sizeof *settings, 0, &node, &error));
	IS(1, node != 0);
	return node;
}

static void start_all(void)
{
	stepvan_node_info info;
	char port[16];
	scheduler = start("scheduler", "0");
	REFUSED(STEPVAN_BUSY, stepvan_health(scheduler, &error));
	struct timespec moment = {0, 1000000};
	for (int i = 0;; i++) {
		OK(stepvan_info(scheduler, &info, &error));
		if (info.root_port != 0)
			break;
		IS(1, i < 10000);
		nanosleep(&moment, NULL);
	}
	snprintf(port, sizeof port, "%" PRIu32, info.root_port);
	worker = start("worker", port);
	IS(STEPVAN_TIMEOUT, stepvan_start_wait(worker, 1000000, &error));
	server = start("server", port);
	OK(stepvan_start_wait(worker, -1, &error));
	OK(stepvan_start_wait(server, -1, &error));
	OK(stepvan_start_wait(scheduler, -1, &error));
	OK(stepvan_start_wait(worker, 0, &error));
}

/* ------------------------------------------------------- wrong arguments */

static void refuses_starts(void)
{
	const stepvan_setting nameless = {NULL, "1"};
	const stepvan_setting wrong[] = {{"DMLC_ROLE", "boss"}, {"DMLC_NUM_WORKER", "1"}};
	const stepvan_setting lonely[] = {
		{"DMLC_ROLE", "worker"}, {"DMLC_NUM_WORKER", "1"}, {"DMLC_NUM_SERVER", "1"}, {"DMLC_LOCAL", "1"},
		{"DMLC_PS_ROOT_PORT", "1"}, {"STEPVAN_LOG_LEVEL", "off"}, {"STEPVAN_START_TIMEOUT", "100ms"},
	};
	uint64_t node = 7;
	REFUSED(STEPVAN_INVALID, stepvan_start(NULL, 0, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_start(NULL, 1, 0, &node, &error));
	REFUSED(STEPVAN_INVALID, stepvan_start(&nameless, 1, 0, &node, &error));
	REFUSED(STEPVAN_CONFIG, stepvan_start(wrong, 2, -1, &node, &error));
	IS(0, strcmp(error.subject, "DMLC_ROLE"));
	IS(0, node);
	REFUSED(STEPVAN_EXPIRED, stepvan_start(lonely, 7, -1, &node, &error));
	IS(0, node);
}

static void refuses_nodes(uint64_t node, int32_t want)
{
	uint64_t n, m;
	int32_t i32;
	int64_t stamps[STEPVAN_STAMPS];
	void *data;
	double x = 0;
	stepvan_node_info info;
	stepvan_tensor t = doubles(&x, 1);
	stepvan_exchange exchange;
	stepvan_batch batch;
	uint32_t rank = 0;
	int64_t rows = 1;
	memset(&exchange, 0, sizeof exchange);
	memset(&batch, 0, sizeof batch);
	REFUSED(want, stepvan_start_wait(node, 0, &error));
	REFUSED(want, stepvan_stop(node, 0, &error));
	REFUSED(want, stepvan_close(node, &error));
	REFUSED(want, stepvan_info(node, &info, &error));
	REFUSED(want, stepvan_health(node, &error));
	REFUSED(want, stepvan_peer_info(node, &rank, &rank, &error));
	REFUSED(want, stepvan_peers(node, NULL, 0, &n, &error));
	REFUSED(want, stepvan_barrier(node, STEPVAN_WORKER, 1, 0, &error));
	REFUSED(want, stepvan_alloc(node, 8, 0, &data, &m, &error));
	REFUSED(want, stepvan_push_pull(node, &exchange, &n, &error));
	REFUSED(want, stepvan_wait(node, 1, 0, &error));
	REFUSED(want, stepvan_done(node, 1, &i32, &error));
	REFUSED(want, stepvan_operations(node, 1, &n, &error));
	REFUSED(want, stepvan_trace(node, 1, stamps, &error));
	REFUSED(want, stepvan_traces(node, 1, stamps, 1, &n, &error));
	REFUSED(want, stepvan_lengths(node, 1, stamps, 1, &n, &error));
	REFUSED(want, stepvan_register(node, &t, 0, &n, &error));
	REFUSED(want, stepvan_registers(node, &i32, &error));
	REFUSED(want, stepvan_register_recv_buffer(node, &t, 0, &rank, &n, 1, 0, &n, &error));
	REFUSED(want, stepvan_get_batch(node, 0, 0, 0, &batch, &error));
	REFUSED(want, stepvan_request_in(node, 1, 0, &t, &error));
	REFUSED(want, stepvan_request_out(node, 1, 0, &t, &error));
	REFUSED(want, stepvan_keep(node, 1, &t, &n, &error));
	REFUSED(want, stepvan_respond(node, 1, &t, 1, 0, &n, &error));
	REFUSED(want, stepvan_respond_vec(node, &t, &rows, &n, 1, 0, &n, &error));
	REFUSED(want, stepvan_respond_copy(node, 1, &t, 1, 0, &n, &i32, &error));
	REFUSED(want, stepvan_respond_vec_copy(node, &t, &rows, &n, 1, 0, &n, &i32, &error));
	REFUSED(want, stepvan_response_wait(node, 1, 0, &error));
	REFUSED(want, stepvan_response_done(node, 1, &i32, &error));
	REFUSED(want, stepvan_notify(node, 1, 1, 1, &error));
	REFUSED(want, stepvan_response_notify(node, 1, 1, 1, &error));
	stepvan_view view;
	memset(&view, 0, sizeof view);
	REFUSED(want, stepvan_send(node, &view, 0, 1, 0, &n, &error));
	REFUSED(want, stepvan_recv(node, &view, 0, 1, 0, &n, &error));
	REFUSED(want, stepvan_cancel(node, 1, &i32, &error));
	REFUSED(want, stepvan_plan(node, "plan", NULL, 0, NULL, 0, 0, 0, &n, &error));
	REFUSED(want, stepvan_plan_with(node, "plan", NULL, 0, NULL, 0, 0, 0, 0, &n, &error));
	REFUSED(want, stepvan_group(node, "group", &rank, 1, &n, &error));
	REFUSED(want, stepvan_gathered(node, 1, 0, NULL, 0, &n, &error));
	REFUSED(want, stepvan_agent(node, "/tmp/none/agent.sock", 0, &n, &error));
	uint8_t token[STEPVAN_TOKEN_BYTES] = {0};
	REFUSED(want, stepvan_mail(node, 0, "topic", NULL, 0, &error));
	REFUSED(want, stepvan_listen(node, "topic", &n, &error));
	REFUSED(want, stepvan_expose(node, &view, 0, NULL, 0, 0, &n, token, NULL, &error));
	REFUSED(want, stepvan_get(node, &view, token, NULL, 0, &n, &error));
	REFUSED(want, stepvan_put(node, &view, token, NULL, NULL, 0, 0, &n, &error));
	REFUSED(want, stepvan_put_rows(node, &view, NULL, 0, token, NULL, NULL, 0, 0, &n, &error));
	REFUSED(want, stepvan_post(node, "key", NULL, 0, &n, &error));
	REFUSED(want, stepvan_unpost(node, "key", &n, &error));
	REFUSED(want, stepvan_watch(node, "", &n, &error));
}

static void refuses_null(void)
{
	uint64_t n = 1, m;
	void *data;
	double x = 0;
	stepvan_tensor t = doubles(&x, 1);
	uint32_t rank = 0;
	int32_t i32;
	int64_t rows = 1;
	stepvan_batch batch;
	memset(&batch, 0, sizeof batch);
	REFUSED(STEPVAN_INVALID, stepvan_info(worker, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_peers(worker, NULL, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_peers(worker, NULL, 1, &n, &error));
	REFUSED(STEPVAN_TOO_SMALL, stepvan_peers(worker, NULL, 0, &n, &error));
	IS(1, n);
	REFUSED(STEPVAN_INVALID, stepvan_alloc(worker, 8, 0, NULL, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_alloc(worker, 8, 0, &data, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wrap(&x, 8, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wrap(NULL, 8, 0, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, NULL, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_done(worker, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_operations(worker, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_trace(worker, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_traces(worker, 1, NULL, 1, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_lengths(worker, 1, NULL, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register(worker, NULL, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_registers(worker, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register(worker, &t, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, NULL, 0, &rank, &n, 1, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, NULL, &n, 1, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, &rank, NULL, 1, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, &rank, &n, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, &rank, &n, 0, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, &rank, &n, UINT64_MAX, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(server, 0, 0, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(server, 0, 4, 0, &batch, &error));
	batch.push_capacity = 1;
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(server, 0, 0, 0, &batch, &error));
	batch.push_capacity = UINT64_MAX;
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(server, 0, 0, 0, &batch, &error));
	REFUSED(STEPVAN_INVALID, stepvan_request_in(server, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_request_out(server, 1, UINT64_MAX, &t, &error));
	REFUSED(STEPVAN_INVALID, stepvan_keep(server, 1, &t, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond(server, 1, NULL, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond(server, 1, &t, UINT64_MAX, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_copy(server, 1, &t, 1, 0, NULL, &i32, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_copy(server, 1, &t, 1, 0, &n, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec_copy(server, &t, &rows, &n, 1, 0, NULL, &i32, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec_copy(server, &t, &rows, &n, 1, 0, &n, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, NULL, &rows, &n, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, &t, NULL, &n, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, &t, &rows, NULL, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, &t, &rows, &n, 0, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_response_done(server, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_queue_open(NULL, NULL, &error));
	IS(STEPVAN_INVALID, stepvan_info(worker, NULL, NULL));
}

static void refuses_rosters(void)
{
	static const unsigned char empty[] = {0xd8, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0}; /* of rank 3, without parameters */
	const stepvan_bytes roster = {empty, sizeof empty}, cut = {empty, 3}, lost = {NULL, 3};
	const uint32_t ranks[] = {3, 4}, far[] = {3, UINT32_MAX};
	stepvan_bytes plans[2];
	uint32_t rank;
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(NULL, 1, 0, 0, 0, ranks, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&lost, 1, 0, 0, 0, ranks, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 0, 0, 0, NULL, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 0, 0, 0, ranks, 2, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 0, 0, 2, ranks, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 0, UINT64_MAX, 0, ranks, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 3, 0, 0, ranks, 2, plans, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_plan(&roster, 1, 0, 0, 0, far, 2, plans, &error));
	IS(1, plans[0].data == NULL);
	REFUSED(STEPVAN_PROTOCOL, stepvan_reshard_plan(&cut, 1, 0, 0, 0, ranks, 2, plans, &error));
	OK(stepvan_reshard_plan(&roster, 1, 0, 0, 0, ranks, 2, plans, &error));
	OK(stepvan_reshard_check(plans[1].data, plans[1].bytes, &error));
	REFUSED(STEPVAN_PROTOCOL, stepvan_reshard_check(plans[1].data, plans[1].bytes - 1, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_check(NULL, 1, &error));
	free((void *)plans[0].data);
	free((void *)plans[1].data);
	REFUSED(STEPVAN_INVALID, stepvan_reshard_source(NULL, 1, &roster, &rank, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_source(&roster, 1, NULL, &rank, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_source(&roster, 1, &roster, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_reshard_source(&roster, 1, &roster, &rank, &error));
	REFUSED(STEPVAN_PROTOCOL, stepvan_reshard_source(&roster, 1, &cut, &rank, &error));
}

static void refuses_values(void)
{
	uint64_t n, m;
	void *data;
	double x = 0;
	stepvan_tensor t = doubles(&x, 1);
	REFUSED(STEPVAN_INVALID, stepvan_alloc(worker, 0, 0, &data, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_alloc(worker, UINT64_MAX, 0, &data, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_alloc(worker, 8, 4, &data, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wrap(&x, 0, 0, &m, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wrap(&x, UINT64_MAX, 0, &m, &error));
	OK(stepvan_alloc(scheduler, 8, 0, &data, &m, &error));
	OK(stepvan_free(m, &error));
	OK(stepvan_alloc(worker, 1, STEPVAN_OWN_FILE | STEPVAN_ZEROED, &data, &m, &error));
	IS(0, (uintptr_t)data % 4096);
	IS(0, *(char *)data);
	OK(stepvan_free(m, &error));
	REFUSED(STEPVAN_STALE, stepvan_free(0, &error));
	REFUSED(STEPVAN_STALE, stepvan_free(worker, &error));
	REFUSED(STEPVAN_STALE, stepvan_free(MADE_UP, &error));
	REFUSED(STEPVAN_STALE, stepvan_unregister(MADE_UP, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_registration_wait(0, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_queue_close(MADE_UP, &error));
	REFUSED(STEPVAN_STALE, stepvan_queue_take(0, &n, 1, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_plan_begin(MADE_UP, 1, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_plan_state(0, NULL, NULL, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_plan_close(worker, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_barrier(MADE_UP, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_all_gather(0, NULL, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_broadcast(MADE_UP, NULL, 0, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_reduce(worker, NULL, NULL, 1, 0, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_close(MADE_UP, &error));
	REFUSED(STEPVAN_STALE, stepvan_group_forget(MADE_UP, &error));
	REFUSED(STEPVAN_STALE, stepvan_agent_close(MADE_UP, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_particle_next(MADE_UP, 0, 0, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_particle_wait(MADE_UP, 0, NULL, 0, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_particle_release(MADE_UP, &error));
	REFUSED(STEPVAN_STALE, stepvan_particle_close(MADE_UP, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_mailbox_next(MADE_UP, 0, NULL, NULL, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_mailbox_notify(0, 1, 1, &error));
	REFUSED(STEPVAN_STALE, stepvan_mailbox_close(worker, &error));
	REFUSED(STEPVAN_STALE, stepvan_unexpose(MADE_UP, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_watch_next(MADE_UP, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_watch_entry(0, 0, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_watch_close(worker, &error));
	REFUSED(STEPVAN_STALE, stepvan_match(MADE_UP, "plan", NULL, 0, NULL, 0, 0, 0, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_match_with(MADE_UP, "plan", NULL, 0, NULL, 0, 0, 0, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_plan(worker, "plan", NULL, 0, NULL, 0, 0, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_cancel(server, 1, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_barrier(worker, 0, 1, 0, &error));
	REFUSED(STEPVAN_INVALID, stepvan_barrier(worker, 8, 1, 0, &error));
	REFUSED(STEPVAN_INVALID, stepvan_barrier(worker, STEPVAN_SERVER, 1, 0, &error));
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(worker, 0, 0, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wait(server, 1, 0, &error));
	REFUSED(STEPVAN_INVALID, stepvan_wait(scheduler, 1, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_wait(worker, 0, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_wait(worker, MADE_UP, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_response_wait(server, MADE_UP, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_respond(server, MADE_UP, &t, 1, 0, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_respond(server, 0, NULL, 0, 0, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_request_in(server, MADE_UP, 0, &t, &error));
	REFUSED(STEPVAN_STALE, stepvan_request_out(server, 0, 0, &t, &error));
	REFUSED(STEPVAN_STALE, stepvan_keep(server, MADE_UP, &t, &n, &error));
	REFUSED(STEPVAN_STALE, stepvan_notify(worker, 1, MADE_UP, 1, &error));
	REFUSED(STEPVAN_STALE, stepvan_response_notify(server, 1, MADE_UP, 1, &error));
	IS(0, strcmp("?", stepvan_code_name(-1)));
	IS(0, strcmp("?", stepvan_code_name(1000)));
	IS(0, strcmp("EXPIRED", stepvan_code_name(STEPVAN_EXPIRED)));
	IS(0, strcmp("REFUSED", stepvan_code_name(STEPVAN_REFUSED)));
	IS(0, strcmp("NO_MEMORY", stepvan_code_name(STEPVAN_NO_MEMORY)));
	IS(STEPVAN_ABI_VERSION, stepvan_abi_version());
	IS(1, strlen(stepvan_version()) > 0);
	IS(1, stepvan_get_nanosecond() > SECOND);
}

/* ------------------------------------------------------------- exchanges */

/* exchange_of has one push and one pull, of keys 1 and 2. */
static stepvan_exchange exchange_of(const stepvan_tensor *push, const stepvan_tensor *pull)
{
	static const uint64_t keys[] = {1, 2};
	stepvan_exchange x;
	memset(&x, 0, sizeof x);
	x.push = push;
	x.pull = pull;
	x.push_keys = &keys[0];
	x.pull_keys = &keys[1];
	x.pushes = x.pulls = 1;
	return x;
}

static void refuses_tensors(void)
{
	double space[4] = {0};
	uint64_t handle, memory;
	void *data;
	stepvan_tensor push = doubles(space, 1), pull = doubles(space + 1, 1), good = push;
	stepvan_exchange x = exchange_of(&push, &pull);
	OK(stepvan_alloc(worker, 64, STEPVAN_ZEROED, &data, &memory, &error));
	IS(0, ((double *)data)[7] != 0);

#define WRONG(want, change) \
	push = good; \
	change; \
	REFUSED(want, stepvan_push_pull(worker, &x, &handle, &error))
	WRONG(STEPVAN_INVALID, push.data = NULL);
	WRONG(STEPVAN_INVALID, push.data = (void *)UINT64_MAX);
	WRONG(STEPVAN_INVALID, push.data = (char *)push.data + 1);
	WRONG(STEPVAN_INVALID, push.bytes = 7);
	WRONG(STEPVAN_INVALID, push.dtype = 0);
	WRONG(STEPVAN_INVALID, push.dtype = 200);
	WRONG(STEPVAN_INVALID, push.rank = 9);
	WRONG(STEPVAN_INVALID, push.rank = 255);
	WRONG(STEPVAN_INVALID, push.shape[0] = -1);
	WRONG(STEPVAN_INVALID, push.shape[0] = INT64_MAX);
	WRONG(STEPVAN_INVALID, push.flags = 0x100);
	WRONG(STEPVAN_STALE, push.memory = MADE_UP);
	WRONG(STEPVAN_STALE, push.memory = worker);
	WRONG(STEPVAN_INVALID, push.memory = memory);
	WRONG(STEPVAN_INVALID, (push.memory = memory, push.data = (char *)data + 64));
	WRONG(STEPVAN_INVALID, (push.memory = memory, push.data = (char *)data - 8));
#undef WRONG
	push = good;
	x.push = NULL;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	x = exchange_of(&push, &pull);
	x.pushes = UINT64_MAX;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	x = exchange_of(&push, &pull);
	x.pull_keys = NULL;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	x = exchange_of(&push, &pull);
	x.routing = 256 + STEPVAN_NAMED;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	x = exchange_of(&push, &pull);
	x.push_to_count = 1;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	x = exchange_of(&push, &pull);
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(server, &x, &handle, &error));
	x.owner = 5;
	push.bytes = 1;
	REFUSED(STEPVAN_INVALID, stepvan_push_pull(worker, &x, &handle, &error));
	uint64_t owner;
	IS(0, stepvan_released(&owner, 1)); /* none of an operation that failed to begin */
	OK(stepvan_free(memory, &error));
	REFUSED(STEPVAN_STALE, stepvan_free(memory, &error));
}

/* arrays of a batch of one request. */
static stepvan_request requests[1];
static stepvan_tensor pushed[4], wanted[4];
static uint64_t push_keys[4], pull_keys[4];

static stepvan_batch batch_of(uint64_t capacity)
{
	stepvan_batch b;
	memset(&b, 0, sizeof b);
	b.requests = requests;
	b.push = pushed;
	b.push_keys = push_keys;
	b.pull = wanted;
	b.pull_keys = pull_keys;
	b.request_capacity = b.push_capacity = b.pull_capacity = capacity;
	return b;
}

static void owned_by(uint64_t owner)
{
	uint64_t got[4];
	struct timespec moment = {0, 1000000};
	for (int i = 0; i < 10000; i++) {
		uint64_t n = stepvan_released(got, 4);
		if (n > 0) {
			IS(1, n);
			IS(owner, got[0]);
			return;
		}
		nanosleep(&moment, NULL);
	}
	IS(owner, 0);
}

/* An exchange in memory without a number: batches that do not fit, answers that do not, owners, queues. */
static void exchanges(void)
{
	double space[4] = {21, 0, 0, 0};
	uint64_t handle, response, owner, queue, tokens[4], n;
	int32_t done, fd;
	stepvan_tensor push = doubles(space, 1), pull = doubles(space + 1, 1), t;
	stepvan_exchange x = exchange_of(&push, &pull);
	stepvan_batch b = batch_of(0);
	REFUSED(STEPVAN_TIMEOUT, stepvan_get_batch(server, STEPVAN_ANY_READY, 0, 0, &b, &error));
	REFUSED(STEPVAN_INVALID, stepvan_get_batch(server, 2, 0, 0, &b, &error));
	OK(stepvan_queue_open(&queue, &fd, &error));
	struct pollfd readable = {fd, POLLIN, 0};

	x.owner = 41;
	x.label = "contract";
	OK(stepvan_push_pull(worker, &x, &handle, &error));
	REFUSED(STEPVAN_BUSY, stepvan_push_pull(worker, &x, &response, &error));
	OK(stepvan_done(worker, handle, &done, &error));
	IS(0, done);
	REFUSED(STEPVAN_TIMEOUT, stepvan_wait(worker, handle, 1000, &error));
	OK(stepvan_notify(worker, handle, queue, 99, &error));
	IS(0, poll(&readable, 1, 0));

	REFUSED(STEPVAN_TOO_SMALL, stepvan_get_batch(server, STEPVAN_ANY_READY, 0, -1, &b, &error));
	IS(1, b.requests_count);
	IS(1, b.push_count);
	IS(1, b.pull_count);
	b = batch_of(4);
	b.pull_capacity = 0;
	REFUSED(STEPVAN_TOO_SMALL, stepvan_get_batch(server, STEPVAN_ANY_READY, 0, 0, &b, &error));
	b = batch_of(4);
	OK(stepvan_get_batch(server, STEPVAN_ANY_READY, 0, 0, &b, &error));
	uint64_t handler = requests[0].handler, kept;
	const double *seen = (const double *)pushed[0].data;
	REFUSED(STEPVAN_INVALID, stepvan_keep(server, handler, space, &kept, &error)); /* not of this request */
	OK(stepvan_keep(server, handler, seen, &kept, &error));
	IS(1, push_keys[0]);
	IS(2, pull_keys[0]);
	IS(21, *(double *)pushed[0].data);
	IS(8, wanted[0].bytes);
	IS(1, wanted[0].data == NULL);

	REFUSED(STEPVAN_INVALID, stepvan_respond(server, handler, NULL, 0, 0, NULL, &error));
	t = doubles(space, 2);
	REFUSED(STEPVAN_INVALID, stepvan_respond(server, handler, &t, 1, 43, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_request_out(server, handler, 1, &t, &error));
	REFUSED(STEPVAN_INVALID, stepvan_request_in(server, handler, 1, &t, &error));
	OK(stepvan_request_in(server, handler, 0, &t, &error));
	IS(21, *(double *)t.data);
	IS(STEPVAN_READ_ONLY, t.flags);
	OK(stepvan_request_out(server, handler, 0, &t, &error));
	stepvan_tensor again;
	OK(stepvan_request_out(server, handler, 0, &again, &error));
	IS(1, again.data == t.data);
	*(double *)t.data = 42;
	OK(stepvan_respond(server, handler, &t, 1, 42, &response, &error));
	REFUSED(STEPVAN_STALE, stepvan_respond(server, handler, &t, 1, 0, NULL, &error));
	REFUSED(STEPVAN_STALE, stepvan_request_out(server, handler, 0, &t, &error));
	REFUSED(STEPVAN_STALE, stepvan_keep(server, handler, seen, &response, &error));
	IS(21, *seen); /* which has been answered */
	OK(stepvan_free(kept, &error));
	REFUSED(STEPVAN_STALE, stepvan_free(kept, &error));
	OK(stepvan_wait(worker, handle, -1, &error));
	IS(42, space[1]);
	OK(stepvan_response_wait(server, response, -1, &error));
	OK(stepvan_response_done(server, response, &done, &error));
	IS(1, done);

	IS(1, poll(&readable, 1, 10000));
	OK(stepvan_queue_take(queue, tokens, 4, &n, &error));
	IS(1, n);
	IS(99, tokens[0]);
	OK(stepvan_response_notify(server, response, queue, 100, &error)); /* done already */
	OK(stepvan_queue_take(queue, tokens, 4, &n, &error));
	IS(1, n);
	OK(stepvan_queue_take(queue, tokens, 4, &n, &error));
	IS(0, n);
	IS(0, poll(&readable, 1, 0));
	OK(stepvan_queue_close(queue, &error));

	uint64_t both = 0;
	for (int i = 0; i < 2; i++) {
		struct timespec moment = {0, 1000000};
		while (stepvan_released(&owner, 1) == 0)
			nanosleep(&moment, NULL);
		both += owner;
	}
	IS(41 + 42, both);

	int64_t stamps[2 * STEPVAN_STAMPS];
	OK(stepvan_operations(worker, handle, &n, &error));
	IS(2, n);
	OK(stepvan_trace(worker, handle, stamps, &error));
	IS(1, stamps[0] > 0 && stamps[7] > stamps[0] && stamps[3] > 0);
	OK(stepvan_traces(worker, handle, stamps, 2, &n, &error));
	IS(1, n);
	REFUSED(STEPVAN_TOO_SMALL, stepvan_traces(worker, handle, NULL, 0, &n, &error));
	REFUSED(STEPVAN_INVALID, stepvan_lengths(worker, handle, stamps, 2, &n, &error)); /* no pull was variable */
}

/* A receive buffer that is refused, at once or late, with an owner: the registration tells whether that was taken. */
static void refused_buffer(const stepvan_tensor *t, uint32_t rank, int32_t want)
{
	const uint64_t key = 1, owner = 53;
	uint64_t registration = MADE_UP, n;
	int32_t code = stepvan_register_recv_buffer(server, t, owner, &rank, &key, 1, 0, &registration, &error);
	if (registration == 0) {
		IS(want, code);
		IS(0, stepvan_released(&n, 1));
		return;
	}
	IS(STEPVAN_TIMEOUT, code);
	REFUSED(want, stepvan_registration_wait(registration, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_registration_wait(registration, -1, &error));
	IS(1, stepvan_released(&n, 1));
	IS(owner, n);
}

/* Memory with a number goes when the last operation on it has ended; registered chunks; rows; variable lengths. */
static void registers(void)
{
	static double buffer[8];
	double *space = (double *)malloc(6 * sizeof *space);
	uint64_t memory, sending, receiving, again, handle, handler, n;
	uint32_t rank = 0, wrong_rank = 9;
	uint64_t key = 1;
	int64_t length;
	if (space == NULL)
		abort();
	for (int i = 0; i < 6; i++)
		space[i] = i;
	OK(stepvan_wrap(space, 6 * sizeof *space, 51, &memory, &error));
	stepvan_tensor push = doubles(space + 1, 2), pull = doubles(space + 3, 2), t = doubles(buffer, 8);
	push.memory = pull.memory = memory;
	OK(stepvan_register(worker, &push, 0, &sending, &error));
	int32_t registers = 1;
	OK(stepvan_registers(worker, &registers, &error));
	IS(0, registers); /* no device needs it */
	OK(stepvan_register(worker, &push, 0, &again, &error));
	OK(stepvan_registration_wait(sending, 0, &error));
	OK(stepvan_unregister(sending, 0, &error));
	REFUSED(STEPVAN_STALE, stepvan_unregister(sending, 0, &error));

	REFUSED(STEPVAN_INVALID, stepvan_register_recv_buffer(server, &t, 0, &wrong_rank, &key, 1, -1, &receiving, &error));
	for (int i = 0; i < 20; i++)
		refused_buffer(&t, wrong_rank, STEPVAN_INVALID);
	OK(stepvan_register_recv_buffer(server, &t, 52, &rank, &key, 1, -1, &receiving, &error));
	OK(stepvan_registration_wait(receiving, -1, &error));
	IS(0, stepvan_released(&n, 1));

	stepvan_exchange x = exchange_of(&push, &pull);
	pull.flags = STEPVAN_VARIABLE;
	stepvan_batch b = batch_of(4);
	OK(stepvan_push_pull(worker, &x, &handle, &error));
	OK(stepvan_free(memory, &error)); /* the exchange holds it */
	REFUSED(STEPVAN_STALE, stepvan_push_pull(worker, &x, &n, &error));
	OK(stepvan_get_batch(server, STEPVAN_LOCK_STEP, 0, -1, &b, &error));
	handler = requests[0].handler;
	IS(1, pushed[0].data == (void *)buffer);
	IS(2, buffer[1]);
	IS(STEPVAN_VARIABLE, wanted[0].flags);
	REFUSED(STEPVAN_BUSY, stepvan_unregister(receiving, -1, &error));
	int64_t rows = 9;
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, &t, &rows, &handler, 1, 0, NULL, &error));
	rows = -1;
	REFUSED(STEPVAN_INVALID, stepvan_respond_vec(server, &t, &rows, &handler, 1, 0, NULL, &error));
	const int64_t two[] = {1, 1};
	const uint64_t twice[] = {handler, handler};
	REFUSED(STEPVAN_BUSY, stepvan_respond_vec(server, &t, two, twice, 2, 0, NULL, &error));
	rows = 1;
	OK(stepvan_respond_vec(server, &t, &rows, &handler, 1, 0, NULL, &error));
	OK(stepvan_wait(worker, handle, -1, &error));
	OK(stepvan_lengths(worker, handle, &length, 1, &n, &error));
	IS(1, n);
	IS(8, length);
	IS(1, space[3]);
	IS(4, space[4]); /* not answered */
	IS(0, stepvan_released(&n, 1)); /* the second registration holds it */
	OK(stepvan_unregister(again, 0, &error));
	owned_by(51);
	free(space);
	OK(stepvan_unregister(receiving, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_registration_wait(receiving, 0, &error));
	IS(1, strstr(error.message, "was ended") != NULL);
	owned_by(52);
}

static void peers(void)
{
	stepvan_peer all[4];
	stepvan_node_info info;
	uint64_t n;
	OK(stepvan_peers(worker, all, 4, &n, &error));
	IS(1, n);
	IS(STEPVAN_SERVER, all[0].role);
	IS(0, all[0].rank);
	IS(1, all[0].connected);
	IS(getpid(), all[0].pid);
	IS(1, all[0].van[0] != 0 && all[0].reason[0] != 0);
	OK(stepvan_peers(scheduler, all, 4, &n, &error));
	IS(2, n);
	OK(stepvan_info(worker, &info, &error));
	IS(STEPVAN_WORKER, info.role);
	IS(0, info.worker_rank);
	IS(-1, info.server_rank);
	IS(1, info.servers);
	OK(stepvan_info(server, &info, &error));
	IS(STEPVAN_SERVER, info.role);
	IS(1, info.workers);
	OK(stepvan_health(worker, &error));
	OK(stepvan_barrier(worker, STEPVAN_WORKER, 1, -1, &error));
	REFUSED(STEPVAN_TIMEOUT, stepvan_barrier(worker, STEPVAN_WORKER | STEPVAN_SERVER, 1, 1000000, &error));
	uint32_t rank, size;
	REFUSED(STEPVAN_INVALID, stepvan_peer_info(worker, &rank, &size, &error));
	IS(1, strstr(error.message, "this node is a worker") != NULL);
}

static uint64_t start_of_peers(const char *role, const char *port)
{
	const stepvan_setting settings[] = {
		{"DMLC_ROLE", role}, {"STEPVAN_NUM_PEER", "2"}, {"DMLC_NUM_WORKER", NULL}, {"DMLC_NUM_SERVER", NULL},
		{"DMLC_LOCAL", "1"}, {"DMLC_PS_ROOT_PORT", port}, {"STEPVAN_LOG_LEVEL", "error"}, {"STEPVAN_START_TIMEOUT", "60s"},
	};
	uint64_t node = 0;
	IS(STEPVAN_TIMEOUT, stepvan_start(settings, sizeof settings / sizeof *settings, 0, &node, &error));
	return node;
}

static void *stop_node(void *node)
{
	OK(stepvan_stop(*(uint64_t *)node, -1, NULL));
	OK(stepvan_close(*(uint64_t *)node, NULL));
	return NULL;
}

/* columns is a view of n elements, each of which is `step` behind the one before. */
static stepvan_view columns(double *first, int64_t n, int64_t step)
{
	stepvan_view v;
	memset(&v, 0, sizeof v);
	v.data = first;
	v.dtype = STEPVAN_FLOAT64;
	v.rank = 2;
	v.shape[0] = n;
	v.shape[1] = v.strides[1] = 1;
	v.strides[0] = step;
	return v;
}

/* Waits in slices for what two peers have begun. */
static void wait_both(const uint64_t *node, const uint64_t *handle)
{
	for (int i = 0; i < 2; i++) {
		int32_t code;
		while ((code = stepvan_wait(node[i], handle[i], 1000000, &error)) == STEPVAN_TIMEOUT)
			;
		OK(code);
	}
}

enum { MANY = 40000 };

static void peers_transfer(const uint64_t *node)
{
	double *from = (double *)malloc(MANY * sizeof *from), *to = (double *)malloc(2 * MANY * sizeof *to); /* C++ needs the casts */
	uint64_t handle[2], queue, token = 0, n = 0;
	int32_t fd, done = 0;
	for (int i = 0; i < MANY; i++)
		from[i] = i;
	stepvan_view x = columns(from, MANY, 1), y = columns(to, MANY, 2);
	OK(stepvan_recv(node[1], &y, 0, 7, 11, &handle[1], &error));
	OK(stepvan_done(node[1], handle[1], &done, &error));
	IS(0, done);
	OK(stepvan_queue_open(&queue, &fd, &error));
	OK(stepvan_notify(node[1], handle[1], queue, 5, &error));
	OK(stepvan_send(node[0], &x, 1, 7, 0, &handle[0], &error));
	wait_both(node, handle);
	struct pollfd readable = {fd, POLLIN, 0};
	IS(1, poll(&readable, 1, 10000));
	OK(stepvan_queue_take(queue, &token, 1, &n, &error));
	IS(5, token);
	OK(stepvan_queue_close(queue, &error));
	for (int i = 0; i < MANY; i++)
		IS(i, to[2 * i]);
	owned_by(11);
	OK(stepvan_recv(node[1], &y, 0, 7, 12, &handle[1], &error));
	REFUSED(STEPVAN_INVALID, stepvan_cancel(node[1], handle[1], NULL, &error));
	OK(stepvan_cancel(node[1], handle[1], &done, &error));
	IS(1, done);
	REFUSED(STEPVAN_CLOSED, stepvan_wait(node[1], handle[1], -1, &error));
	owned_by(12);
	free(from);
	free(to);
}

/* The memory is freed as soon as the plan is closed. */
static void peers_plan(const uint64_t *node)
{
	double *from = (double *)malloc(MANY * sizeof *from), *to = (double *)malloc(2 * MANY * sizeof *to);
	uint64_t plan[2], handle[2], offered = 0, version = 0;
	stepvan_plan_stats stats;
	stepvan_move move[2];
	memset(move, 0, sizeof move);
	move[0].view = columns(from, MANY, 1);
	move[1].view = columns(to, MANY, 2);
	move[0].id = move[1].id = UINT64_MAX;
	move[0].peer = 1;
	move[0].label = "weight";
	REFUSED(STEPVAN_INVALID, stepvan_plan_with(node[0], "weights", &move[0], 1, NULL, 0, 2, 0, -1, &plan[0], &error));
	OK(stepvan_plan_with(node[0], "weights", &move[0], 1, NULL, 0, STEPVAN_PLAN_REPLICAS, 0, -1, &plan[0], &error));
	REFUSED(STEPVAN_BUSY, stepvan_plan_begin(plan[0], 1, &handle[0], &error));
	OK(stepvan_plan_with(node[1], "weights", NULL, 0, &move[1], 1, STEPVAN_PLAN_REPLICAS, 13, -1, &plan[1], &error));
	wait_both(node, plan);
	for (uint64_t run = 1; run < 4; run++) {
		for (int i = 0; i < MANY; i++)
			from[i] = (double)run * i;
		OK(stepvan_plan_begin(plan[0], run, &handle[0], &error));
		OK(stepvan_plan_begin(plan[1], run, &handle[1], &error));
		wait_both(node, handle);
		OK(stepvan_plan_state(plan[1], &offered, &version, &stats, &error));
		IS(0, offered);
		IS(run, version);
		IS(MANY * 8, stats.received);
		IS(0, stats.passed);
		for (int i = 0; i < MANY; i++)
			IS((int)run * i, to[2 * i]);
	}
	OK(stepvan_plan_close(plan[0], -1, &error));
	OK(stepvan_plan_close(plan[1], -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_plan_close(plan[1], -1, &error));
	free(from);
	free(to);
	owned_by(13);
}

static void peers_meet(const uint64_t *node)
{
	const uint32_t ranks[] = {1, 0};
	uint64_t group[2], handle[2], n;
	char text[6] = "zero!";
	for (int i = 0; i < 2; i++) {
		REFUSED(STEPVAN_INVALID, stepvan_group(node[i], NULL, ranks, 2, &group[i], &error));
		OK(stepvan_group(node[i], "both", ranks, 2, &group[i], &error));
		OK(stepvan_group_barrier(group[i], &handle[i], &error));
	}
	wait_both(node, handle);
	for (int i = 0; i < 2; i++)
		OK(stepvan_group_all_gather(group[i], i == 0 ? text : NULL, i == 0 ? 5 : 0, &handle[i], &error));
	wait_both(node, handle);
	memset(text, 0, sizeof text);
	for (int i = 0; i < 2; i++) {
		OK(stepvan_gathered(node[i], handle[i], 0, NULL, 0, &n, &error));
		IS(0, n);
		REFUSED(STEPVAN_TOO_SMALL, stepvan_gathered(node[i], handle[i], 1, text, 4, &n, &error));
		IS(5, n);
		OK(stepvan_gathered(node[i], handle[i], 1, text, 5, &n, &error));
		IS(0, memcmp(text, "zero!", 6));
	}
	double mine[2][3] = {{1, 2, 3}, {4, 5, 6}}, sum[3];
	for (int i = 0; i < 2; i++) { /* member 1 is peer 0 */
		stepvan_view view = columns(mine[i], 3, 1), into = columns(sum, 3, 1);
		REFUSED(STEPVAN_INVALID, stepvan_group_reduce(group[i], &view, NULL, STEPVAN_SUM, 1 - (uint32_t)i, 0, &handle[i], &error));
		OK(stepvan_group_reduce(group[i], &view, i == 0 ? &into : NULL, STEPVAN_SUM, 1, i == 0 ? 17 : 0, &handle[i], &error));
	}
	wait_both(node, handle);
	owned_by(17);
	for (int i = 0; i < 3; i++)
		IS(5 + 2 * i, sum[i]);
	for (int i = 0; i < 2; i++) {
		stepvan_view view = columns(mine[i], 3, 1);
		OK(stepvan_group_broadcast(group[i], &view, 0, i == 0 ? 18 : 0, &handle[i], &error));
	}
	wait_both(node, handle);
	owned_by(18);
	for (int i = 0; i < 2; i++) {
		IS(mine[0][2], mine[1][2]);
		OK(stepvan_group_close(group[i], &error));
		REFUSED(STEPVAN_STALE, stepvan_group_barrier(group[i], &handle[i], &error));
	}
}

/* Agents of the tensor bus, of which a peer has one. */
static void peers_have_agents(const uint64_t *node)
{
	uint64_t agent, other;
	char folder[] = "/tmp/stepvan-contract-XXXXXX", path[64];
	IS(1, mkdtemp(folder) != NULL);
	snprintf(path, sizeof path, "%s/agent.sock", folder);
	REFUSED(STEPVAN_INVALID, stepvan_agent(node[0], NULL, 0, &agent, &error));
	REFUSED(STEPVAN_INVALID, stepvan_agent(node[0], path, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_agent(node[0], path, UINT64_MAX, &agent, &error));
	REFUSED(STEPVAN_INVALID, stepvan_agent(node[0], "agent.sock", 0, &agent, &error));
	OK(stepvan_agent(node[0], path, 0, &agent, &error));
	REFUSED(STEPVAN_INVALID, stepvan_agent(node[0], path, 0, &other, &error));
	OK(stepvan_agent_close(agent, -1, &error));
	REFUSED(STEPVAN_STALE, stepvan_agent_close(agent, -1, &error));
	OK(stepvan_agent(node[0], path, 5, &agent, &error));
	OK(stepvan_agent_close(agent, 10000000000, &error));
	OK(stepvan_agent(node[1], path, 0, &other, &error)); /* it ends with its node */
	unlink(path);
	rmdir(folder);
}

/* Mail, and a window that the other peer reads and writes. */
static void peers_reach(const uint64_t *node)
{
	double own[6] = {0, 1, 2, 3, 4, 5}, other[2] = {7, 8};
	const int64_t at[] = {4, 0};
	uint64_t window, notes, mailbox, handle, n;
	uint8_t token[STEPVAN_TOKEN_BYTES], forged[STEPVAN_TOKEN_BYTES] = {1};
	uint32_t from = 7;
	char text[8];
	stepvan_view all = columns(own, 6, 1), part = columns(other, 2, 1);
	const uint32_t admitted[] = {1};
	REFUSED(STEPVAN_INVALID, stepvan_expose(node[0], &all, 2, NULL, 0, 0, &window, token, NULL, &error));
	OK(stepvan_expose(node[0], &all, STEPVAN_WRITE, admitted, 1, 14, &window, token, &notes, &error));
	REFUSED(STEPVAN_INVALID, stepvan_get(node[1], &part, forged, at, 0, &handle, &error));
	OK(stepvan_get(node[1], &part, token, at, 15, &handle, &error));
	OK(stepvan_wait(node[1], handle, -1, &error));
	IS(9, other[0] + other[1]);
	owned_by(15);
	other[0] = other[1] = 20;
	OK(stepvan_put(node[1], &part, token, NULL, "note", 4, 0, &handle, &error));
	OK(stepvan_wait(node[1], handle, -1, &error));
	REFUSED(STEPVAN_TOO_SMALL, stepvan_mailbox_next(notes, -1, &from, NULL, 0, &n, &error));
	IS(4, n);
	OK(stepvan_mailbox_next(notes, -1, &from, text, sizeof text, &n, &error));
	IS(1, from);
	IS(0, memcmp(text, "note", 4));
	IS(42, own[0] + own[1] + own[2]);
	const int64_t rows[] = {1, 0}, wrong[] = {0, 2};
	other[0] = 5, other[1] = 6;
	REFUSED(STEPVAN_INVALID, stepvan_put_rows(node[1], &part, wrong, 2, token, NULL, NULL, 0, 0, &handle, &error));
	REFUSED(STEPVAN_INVALID, stepvan_put_rows(node[1], &part, NULL, 2, token, NULL, NULL, 0, 0, &handle, &error));
	OK(stepvan_put_rows(node[1], &part, rows, 2, token, NULL, "rows", 4, 16, &handle, &error));
	OK(stepvan_wait(node[1], handle, -1, &error));
	owned_by(16);
	OK(stepvan_mailbox_next(notes, -1, &from, text, sizeof text, &n, &error));
	IS(0, memcmp(text, "rows", 4));
	IS(1, own[0] == 6 && own[1] == 5);
	OK(stepvan_unexpose(window, -1, &error));
	owned_by(14);
	OK(stepvan_get(node[1], &part, token, at, 0, &handle, &error));
	int32_t code = stepvan_wait(node[1], handle, -1, &error);
	IS(1, code == STEPVAN_STALE || code == STEPVAN_REMOTE);
	OK(stepvan_mailbox_close(notes, &error));

	OK(stepvan_mail(node[0], 1, "topic", "early", 5, &error));
	OK(stepvan_listen(node[1], "topic", &mailbox, &error));
	REFUSED(STEPVAN_INVALID, stepvan_listen(node[1], "topic", &n, &error));
	OK(stepvan_mailbox_next(mailbox, -1, &from, text, sizeof text, &n, &error));
	IS(5, n);
	IS(0, memcmp(text, "early", 5));
	REFUSED(STEPVAN_TIMEOUT, stepvan_mailbox_next(mailbox, 1000, &from, text, sizeof text, &n, &error));
	OK(stepvan_mail(node[1], 1, "topic", NULL, 0, &error));
	OK(stepvan_mailbox_next(mailbox, -1, &from, NULL, 0, &n, &error));
	IS(0, n);
	OK(stepvan_mailbox_close(mailbox, &error));
	REFUSED(STEPVAN_STALE, stepvan_mailbox_next(mailbox, 0, &from, NULL, 0, &n, &error));
}

/* Halves of a matrix become the whole. */
static void peers_match(const uint64_t *node)
{
	const int64_t shape[] = {6, 1};
	const uint32_t mesh[] = {2}, ranks[] = {0, 1}, counts[] = {1, 1};
	const stepvan_placement shard[] = {{STEPVAN_SHARD, 0, 0}}, odd[] = {{9, 0, 0}}, partial[] = {{3, 0, 0}};
	const stepvan_span spans[] = {{0, 3, 0}, {0, 1, 0}}, far[] = {{0, 7, 0}, {0, 1, 0}};
	const stepvan_partition partition = {0, 1, 2, 0, 0, 0, NULL};
	double half[2][3] = {{1, 2, 3}, {4, 5, 6}}, whole[6];
	stepvan_bytes part[2], same, nothing = {NULL, 0};
	int64_t all[STEPVAN_MAX_RANK], local[STEPVAN_MAX_RANK];
	uint64_t group[2], plan[2], handle[2];
	uint32_t rank = 0;
	stepvan_named out[2], in;
	REFUSED(STEPVAN_INVALID, stepvan_part_of_mesh(NULL, 2, mesh, shard, 1, 0, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_mesh(shape, 2, mesh, shard, 1, 0, NULL, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_mesh(shape, 2, mesh, shard, 1, 2, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_mesh(shape, 2, mesh, odd, 1, 0, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_mesh(shape, 2, mesh, partial, 1, 0, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_spans(shape, 2, spans, NULL, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_spans(shape, 2, NULL, counts, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_spans(shape, 2, far, counts, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_partition(shape, 2, NULL, 0, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_of_partition(shape, 2, &partition, 2, &same, &error));
	REFUSED(STEPVAN_INVALID, stepvan_part_shape(NULL, all, local, &rank, &error));
	REFUSED(STEPVAN_PROTOCOL, stepvan_part_shape(&nothing, all, local, &rank, &error));
	OK(stepvan_part_of_spans(shape, 2, spans, counts, &same, &error));
	OK(stepvan_part_of_mesh(shape, 2, mesh, shard, 1, 0, &part[0], &error));
	OK(stepvan_part_of_partition(shape, 2, &partition, 1, &part[1], &error));
	IS(same.bytes, part[0].bytes);
	IS(0, memcmp(same.data, part[0].data, same.bytes));
	OK(stepvan_part_shape(&part[1], all, local, &rank, &error));
	IS(2, rank);
	IS(6, all[0]);
	IS(3, local[0]);
	memset(out, 0, sizeof out);
	memset(&in, 0, sizeof in);
	in.view = columns(whole, 6, 1);
	in.name = "weight";
	for (int i = 0; i < 2; i++) {
		out[i].view = columns(half[i], 3, 1);
		out[i].name = "weight";
		out[i].part = part[i];
		OK(stepvan_group(node[i], "match", ranks, 2, &group[i], &error));
		OK(stepvan_match(group[i], "model", &out[i], 1, &in, i == 0, 16, -1, &plan[i], &error));
		REFUSED(STEPVAN_BUSY, stepvan_group_barrier(group[i], &handle[i], &error));
	}
	wait_both(node, plan);
	for (int i = 0; i < 2; i++)
		OK(stepvan_plan_begin(plan[i], 1, &handle[i], &error));
	wait_both(node, handle);
	for (int i = 0; i < 6; i++)
		IS(i + 1, whole[i]);
	for (int i = 0; i < 2; i++) {
		OK(stepvan_plan_close(plan[i], -1, &error));
		OK(stepvan_group_forget(group[i], &error));
		REFUSED(STEPVAN_STALE, stepvan_group_forget(group[i], &error));
		owned_by(16);
		free((void *)part[i].data);
	}
	free((void *)same.data);
}

static void posts(const uint64_t *node)
{
	static stepvan_entry entry;
	uint64_t watch, handle, n;
	OK(stepvan_watch(node[1], "test/", &watch, &error));
	OK(stepvan_watch_next(watch, -1, &n, &error));
	IS(0, n);
	REFUSED(STEPVAN_TIMEOUT, stepvan_watch_next(watch, 1000, &n, &error));
	OK(stepvan_post(node[0], "test/a", "value", 5, &handle, &error));
	OK(stepvan_wait(node[0], handle, -1, &error));
	OK(stepvan_watch_next(watch, -1, &n, &error));
	IS(1, n);
	OK(stepvan_watch_entry(watch, 0, &entry, &error));
	IS(0, strcmp(entry.key, "test/a"));
	IS(0, strcmp(entry.owner, "peer 0"));
	IS(5, entry.bytes);
	IS(0, memcmp(entry.value, "value", 5));
	REFUSED(STEPVAN_INVALID, stepvan_watch_entry(watch, 1, &entry, &error));
	OK(stepvan_post(node[1], "test/a", NULL, 0, &handle, &error));
	REFUSED(STEPVAN_REMOTE, stepvan_wait(node[1], handle, -1, &error));
	OK(stepvan_post(scheduler, "test/", NULL, 0, &handle, &error)); /* of another cluster */
	OK(stepvan_wait(scheduler, handle, -1, &error));
	OK(stepvan_unpost(node[0], "test/a", &handle, &error));
	OK(stepvan_wait(node[0], handle, -1, &error));
	OK(stepvan_watch_next(watch, -1, &n, &error));
	IS(0, n);
	OK(stepvan_watch_close(watch, &error));
}

/* A cluster of peers alone. */
static void peers_alone(void)
{
	struct timespec moment = {0, 1000000};
	stepvan_node_info info;
	stepvan_peer other;
	char port[16];
	uint64_t node[3], n;
	uint32_t rank[2], size = 0;
	node[2] = start_of_peers("scheduler", "0");
	for (info.root_port = 0; info.root_port == 0; nanosleep(&moment, NULL))
		OK(stepvan_info(node[2], &info, &error));
	snprintf(port, sizeof port, "%" PRIu32, info.root_port);
	for (int i = 0; i < 2; i++)
		node[i] = start_of_peers("peer", port);
	for (int i = 0; i < 3; i++)
		OK(stepvan_start_wait(node[i], -1, &error));
	for (int i = 0; i < 2; i++) {
		OK(stepvan_info(node[i], &info, &error));
		IS(STEPVAN_PEER, info.role);
		IS(-1, info.worker_rank);
		IS(-1, info.server_rank);
		REFUSED(STEPVAN_INVALID, stepvan_peer_info(node[i], NULL, &size, &error));
		OK(stepvan_peer_info(node[i], &rank[i], &size, &error));
		IS(2, size);
		OK(stepvan_peers(node[i], &other, 1, &n, &error));
		IS(1, n);
		IS(STEPVAN_PEER, other.role);
		IS(1 - (int)rank[i], other.rank);
		REFUSED(STEPVAN_INVALID, stepvan_barrier(node[i], STEPVAN_WORKER, 1, 0, &error));
		if (i == 0)
			REFUSED(STEPVAN_TIMEOUT, stepvan_barrier(node[i], STEPVAN_PEER, 1, 1000000, &error));
		OK(stepvan_health(node[i], &error));
	}
	IS(1, rank[0] + rank[1]);
	const uint64_t by_rank[] = {node[rank[0]], node[rank[1]]};
	peers_transfer(by_rank);
	peers_plan(by_rank);
	peers_meet(by_rank);
	peers_have_agents(by_rank);
	peers_reach(by_rank);
	peers_match(by_rank);
	posts(by_rank);
	pthread_t thread[3];
	for (int i = 0; i < 3; i++)
		IS(0, pthread_create(&thread[i], NULL, stop_node, &node[i]));
	for (int i = 0; i < 3; i++)
		IS(0, pthread_join(thread[i], NULL));
}

/* A forked child is refused by every function, and can end; the parent continues. */
static void forks(void)
{
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		uint64_t n;
		int32_t fd;
		char *empty[] = {NULL};
		refuses_nodes(worker, STEPVAN_FORKED);
		REFUSED(STEPVAN_FORKED, stepvan_start(NULL, 0, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_wrap(&n, 8, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_free(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_registration_wait(1, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_unregister(1, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_queue_open(&n, &fd, &error));
		REFUSED(STEPVAN_FORKED, stepvan_queue_take(1, &n, 1, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_queue_close(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_plan_begin(1, 1, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_plan_state(1, NULL, NULL, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_plan_close(1, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_barrier(1, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_all_gather(1, NULL, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_broadcast(1, NULL, 0, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_reduce(1, NULL, NULL, 1, 0, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_close(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_group_forget(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_agent_close(1, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_mailbox_next(1, 0, NULL, NULL, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_mailbox_notify(1, 1, 1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_mailbox_close(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_unexpose(1, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_watch_next(1, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_watch_entry(1, 0, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_watch_close(1, &error));
		REFUSED(STEPVAN_FORKED, stepvan_match(1, "plan", NULL, 0, NULL, 0, 0, 0, &n, &error));
		REFUSED(STEPVAN_FORKED, stepvan_part_of_spans(NULL, 0, NULL, NULL, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_part_of_mesh(NULL, 0, NULL, NULL, 0, 0, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_part_of_partition(NULL, 0, NULL, 0, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_part_shape(NULL, NULL, NULL, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_reshard_plan(NULL, 0, 0, 0, 0, NULL, 0, NULL, &error));
		REFUSED(STEPVAN_FORKED, stepvan_reshard_check(NULL, 0, &error));
		REFUSED(STEPVAN_FORKED, stepvan_reshard_source(NULL, 0, NULL, NULL, &error));
		n = 1;
		uint32_t rank = 0;
		uint64_t key = 1;
		double x = 0;
		stepvan_tensor t = doubles(&x, 1);
		REFUSED(STEPVAN_FORKED, stepvan_register_recv_buffer(server, &t, 5, &rank, &key, 1, 0, &n, &error));
		IS(0, n);
		IS(STEPVAN_FORKED, stepvan_health(worker, NULL));
		IS(0, stepvan_released(&n, 1));
		IS(0, stepvan_get_nanosecond());
		IS(125, stepvan_main(0, (const char *const *)empty, 0, NULL));
		_exit(0);
	}
	int status = -1;
	IS(child, waitpid(child, &status, 0));
	IS(0, status);
	OK(stepvan_health(worker, &error));
}

static void *stop(void *node)
{
	static int32_t code[3];
	int i = *(uint64_t *)node == worker ? 0 : *(uint64_t *)node == server ? 1 : 2;
	while ((code[i] = stepvan_stop(*(uint64_t *)node, 1000000, NULL)) == STEPVAN_TIMEOUT)
		;
	return &code[i];
}

static void stops(void)
{
	pthread_t threads[3];
	uint64_t *all[3] = {&worker, &server, &scheduler}, n;
	double x = 0;
	stepvan_tensor t = doubles(&x, 1);
	stepvan_exchange exchange = exchange_of(&t, &t);
	stepvan_batch b = batch_of(4);
	REFUSED(STEPVAN_TIMEOUT, stepvan_stop(worker, 0, &error));
	REFUSED(STEPVAN_CLOSED, stepvan_push_pull(worker, &exchange, &n, &error));
	REFUSED(STEPVAN_CLOSED, stepvan_get_batch(server, 0, 0, -1, &b, &error));
	for (int i = 0; i < 3; i++)
		IS(0, pthread_create(&threads[i], NULL, stop, all[i]));
	for (int i = 0; i < 3; i++) {
		void *code;
		IS(0, pthread_join(threads[i], &code));
		IS(STEPVAN_OK, *(int32_t *)code);
	}
	for (int i = 0; i < 3; i++) {
		uint64_t node = *all[i];
		OK(stepvan_stop(node, -1, &error));
		if (node == server)
			refused_buffer(&t, 0, STEPVAN_CLOSED);
		OK(stepvan_close(node, &error));
		refuses_nodes(node, STEPVAN_CLOSED);
	}
}

/* What a thread waits for, without a limit, until the node is closed. */
typedef struct waiter {
	pthread_t thread;
	int what;
	uint64_t handle;
	int32_t code;
} waiter;

static void *await(void *argument)
{
	waiter *w = (waiter *)argument;
	stepvan_batch b = batch_of(0);
	switch (w->what) {
	case 0:
		w->code = stepvan_wait(worker, w->handle, -1, NULL);
		break;
	case 1:
		w->code = stepvan_get_batch(server, 0, 0, -1, &b, NULL);
		break;
	case 2:
		w->code = stepvan_barrier(worker, STEPVAN_WORKER | STEPVAN_SERVER, 1, -1, NULL);
		break;
	default:
		w->code = stepvan_stop(scheduler, -1, NULL);
	}
	return NULL;
}

static void begin(waiter *w, int what, uint64_t handle)
{
	w->what = what;
	w->handle = handle;
	IS(0, pthread_create(&w->thread, NULL, await, w));
}

/* Nodes that are closed without a stop leave at once: waits end, and every owner comes back. */
static void leaves(void)
{
	static double space[2], buffer[2];
	uint64_t handle, n, keys[2] = {1, 5}, owners = 0, owner;
	uint32_t ranks[2] = {0, 0};
	start_all();
	stepvan_tensor push = doubles(space, 1), pull = doubles(space + 1, 1), chunks = doubles(buffer, 2);
	stepvan_exchange x = exchange_of(&push, &pull);
	stepvan_batch b = batch_of(4);
	OK(stepvan_register(worker, &push, 61, &n, &error));
	OK(stepvan_register(server, &push, 65, &n, &error));
	OK(stepvan_register_recv_buffer(server, &chunks, 62, ranks, keys, 2, -1, &n, &error));
	x.owner = 64;
	OK(stepvan_push_pull(worker, &x, &handle, &error));
	OK(stepvan_get_batch(server, 0, 0, -1, &b, &error)); /* which is never answered */

	waiter w[4];
	for (int i = 0; i < 4; i++)
		begin(&w[i], i, handle);
	struct timespec moment = {0, 20000000}; /* so that they wait, as a rule */
	nanosleep(&moment, NULL);
	OK(stepvan_close(server, &error));
	IS(0, pthread_join(w[1].thread, NULL));
	IS(STEPVAN_CLOSED, w[1].code);
	IS(0, pthread_join(w[0].thread, NULL));
	IS(STEPVAN_PEER_LOST, w[0].code);
	OK(stepvan_close(worker, &error));
	IS(0, pthread_join(w[2].thread, NULL));
	IS(1, w[2].code == STEPVAN_CLOSED || w[2].code == STEPVAN_PEER_LOST);
	OK(stepvan_close(scheduler, &error));
	IS(0, pthread_join(w[3].thread, NULL));
	for (int i = 0; i < 4; owners += owner) {
		if (stepvan_released(&owner, 1) == 1)
			i++;
		else
			owner = 0, nanosleep(&moment, NULL);
	}
	IS(61 + 62 + 64 + 65, owners);
}

/* MENTIONS checks what the last error says. */
#define MENTIONS(text) IS(1, strstr(error.message, text) != NULL)

/* Has a mistake of the library, made on purpose, end the worker while it waits for an answer or, when it does not, on a
 * thread of the library. */
static uint64_t broken(const char *locked, int waits)
{
	static double space[2];
	struct timespec moment = {0, 1000000};
	uint64_t handle;
	panic_after = "1";
	panic_locked = locked;
	start_all();
	panic_after = panic_locked = NULL;
	stepvan_tensor push = doubles(space, 1), pull = doubles(space + 1, 1);
	stepvan_exchange x = exchange_of(&push, &pull);
	stepvan_batch b = batch_of(4);
	x.owner = 71;
	OK(stepvan_push_pull(worker, &x, &handle, &error));
	OK(stepvan_get_batch(server, 0, 0, -1, &b, &error));
	OK(stepvan_respond(server, requests[0].handler, &push, 1, 0, NULL, &error));
	for (int i = 0; !waits && stepvan_health(worker, NULL) == STEPVAN_OK; i++) {
		IS(1, i < 10000);
		nanosleep(&moment, NULL);
	}
	REFUSED(STEPVAN_INTERNAL, stepvan_wait(worker, handle, 30 * SECOND, &error));
	MENTIONS("worker 0");
	MENTIONS("server 0 (");
	MENTIONS("response");
	MENTIONS(stepvan_version());
	IS(0, error.subject[0]);
	return handle;
}

/* A mistake of the library ends the node, and neither the process nor another node. */
static void breaks(int waits)
{
	double space[2];
	stepvan_tensor push = doubles(space, 1), pull = doubles(space + 1, 1);
	stepvan_exchange x = exchange_of(&push, &pull);
	stepvan_batch b = batch_of(4);
	uint64_t handle = broken(NULL, waits), owner = 0;
	struct timespec moment = {0, 1000000};
	REFUSED(STEPVAN_INTERNAL, stepvan_wait(worker, handle, -1, &error));
	REFUSED(STEPVAN_INTERNAL, stepvan_push_pull(worker, &x, &handle, &error));
	REFUSED(STEPVAN_INTERNAL, stepvan_barrier(worker, STEPVAN_WORKER | STEPVAN_SERVER, 1, -1, &error));
	REFUSED(STEPVAN_INTERNAL, stepvan_health(worker, &error));
	REFUSED(STEPVAN_INTERNAL, stepvan_stop(worker, 30 * SECOND, &error));
	REFUSED(STEPVAN_INTERNAL, stepvan_stop(worker, -1, &error));
	for (int i = 0; stepvan_released(&owner, 1) == 0; i++) {
		IS(1, i < 10000);
		nanosleep(&moment, NULL);
	}
	IS(71, owner);
	REFUSED(STEPVAN_PEER_LOST, stepvan_get_batch(server, 0, 0, 30 * SECOND, &b, &error));
	IS(0, strcmp(error.subject, "worker 0"));
	OK(stepvan_close(worker, &error));
	OK(stepvan_close(server, &error));
	OK(stepvan_close(scheduler, &error));
}

/* With a lock left locked the process ends, with a report: this program runs once more, with this variable. */
#define LOCKED "CONTRACT_LOCKED"

static void last_words(const char *self)
{
	char text[1 << 16];
	int ends[2], status;
	size_t have = 0;
	ssize_t n;
	IS(0, pipe(ends));
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		setenv(LOCKED, "1", 1);
		execl(self, self, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + have, sizeof text - 1 - have)) > 0)
		have += (size_t)n;
	text[have] = 0;
	close(ends[0]);
	IS(child, waitpid(child, &status, 0));
	IS(1, WIFSIGNALED(status));
	IS(SIGABRT, WTERMSIG(status));
	IS(1, strstr(text, "panic: stepvan: the node cannot be closed") != NULL);
	IS(1, strstr(text, "internal error: stepvan ") != NULL);
	IS(1, strstr(text, "worker 0: receive ") != NULL);
	IS(1, strstr(text, "peer server 0 (") != NULL);
}

/* A process may end with nodes that work. */
static void goes(void)
{
	start_all();
	puts("libstepvan.so keeps stepvan.h");
}

/* The command line, with the environment of the moment. */
static void commands(void)
{
	const char *const version[] = {"version"}, *const nonsense[] = {"no-such-command"}, *const null[] = {NULL};
	fflush(stdout);
	IS(0, stepvan_main(1, version, 0, NULL));
	IS(2, stepvan_main(1, nonsense, 1, version));
	IS(125, stepvan_main(1, NULL, 0, NULL));
	IS(125, stepvan_main(1, null, 0, NULL));
	IS(125, stepvan_main(-1, version, 0, NULL));
	IS(125, stepvan_main(1, version, 1, NULL));
}

/* This program with arguments is stepvan, so that commands which start themselves can be tried. */
static int run(int argc, char **argv)
{
	const char *const self[] = {argv[0]};
	return stepvan_main(argc - 1, (const char *const *)argv + 1, 1, self);
}

int main(int argc, char **argv)
{
	if (getenv(LOCKED) != NULL) {
		broken("1", 0);
		stepvan_stop(worker, -1, NULL); /* which does not return */
		return 0;
	}
	if (argc > 1) {
		setenv("STEPVAN_LOG_LEVEL", "warn", 1); /* after Go has read its environment */
		return run(argc, argv);
	}
	commands();
	refuses_starts();
	refuses_nodes(0, STEPVAN_STALE);
	refuses_nodes(MADE_UP, STEPVAN_STALE);
	start_all();
	refuses_null();
	refuses_rosters();
	refuses_values();
	refuses_tensors();
	exchanges();
	registers();
	peers();
	peers_alone();
	forks();
	stops();
	leaves();
	breaks(0);
	breaks(1);
	last_words(argv[0]);
	goes();
	return 0;
}
