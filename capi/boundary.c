#include "boundary.h"

#include <pthread.h>
#include <stdio.h>

#include "_cgo_export.h"

/* The functions of stepvan.h. Each calls its Go half, and refuses a forked child, whose Go runtime has lost its
 * threads. */

uint64_t boundary_released;
char boundary_version[128];

/* The layouts of compiled programs. A change needs another STEPVAN_ABI_VERSION. */
_Static_assert(sizeof(stepvan_error) == 1024, "stepvan_error");
_Static_assert(offsetof(stepvan_error, message) == 128, "stepvan_error.message");
_Static_assert(sizeof(stepvan_tensor) == 96, "stepvan_tensor");
_Static_assert(offsetof(stepvan_tensor, shape) == 32, "stepvan_tensor.shape");
_Static_assert(sizeof(stepvan_view) == 152, "stepvan_view");
_Static_assert(offsetof(stepvan_view, shape) == 24, "stepvan_view.shape");
_Static_assert(sizeof(stepvan_exchange) == 104, "stepvan_exchange");
_Static_assert(offsetof(stepvan_exchange, label) == 96, "stepvan_exchange.label");
_Static_assert(sizeof(stepvan_request) == 40, "stepvan_request");
_Static_assert(sizeof(stepvan_batch) == 88, "stepvan_batch");
_Static_assert(sizeof(stepvan_peer) == 232, "stepvan_peer");
_Static_assert(sizeof(stepvan_node_info) == 24, "stepvan_node_info");
_Static_assert(sizeof(stepvan_bytes) == 16, "stepvan_bytes");
_Static_assert(sizeof(stepvan_move) == 176, "stepvan_move");
_Static_assert(offsetof(stepvan_move, label) == 168, "stepvan_move.label");
_Static_assert(sizeof(stepvan_plan_stats) == 128, "stepvan_plan_stats");
_Static_assert(sizeof(stepvan_named) == 176, "stepvan_named");
_Static_assert(sizeof(stepvan_span) == 24, "stepvan_span");
_Static_assert(sizeof(stepvan_partition) == 32, "stepvan_partition");
_Static_assert(sizeof(stepvan_entry) == 4440, "stepvan_entry");
_Static_assert(sizeof(stepvan_particle_options) == 64, "stepvan_particle_options");
_Static_assert(sizeof(stepvan_particle_place) == 16, "stepvan_particle_place");
_Static_assert(sizeof(stepvan_particle_value) == 48, "stepvan_particle_value");
_Static_assert(sizeof(stepvan_particle_call) == 224, "stepvan_particle_call");
_Static_assert(offsetof(stepvan_particle_call, value) == 176, "stepvan_particle_call.value");

static int forked;

static void after_fork(void)
{
	forked = 1;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

extern char **environ;

char **boundary_environ(void)
{
	return environ;
}

void *boundary_alloc(size_t n)
{
	void *p = NULL;
	return posix_memalign(&p, 64, n) == 0 ? p : NULL;
}

static int32_t refuse(stepvan_error *error)
{
	if (error != NULL) {
		memset(error, 0, sizeof *error);
		error->code = STEPVAN_FORKED;
		snprintf(error->message, sizeof error->message,
		         "this process was forked from one that uses stepvan, and cannot use it: start it by executing a program "
		         "(in Python: multiprocessing with \"spawn\")");
	}
	return STEPVAN_FORKED;
}

uint32_t stepvan_abi_version(void)
{
	return STEPVAN_ABI_VERSION;
}

const char *stepvan_code_name(int32_t code)
{
	static const char *const names[] = {
		"OK", "TIMEOUT", "CLOSED", "PEER_LOST", "CONFIG", "INVALID", "BUSY", "WOULD_BLOCK", "STALE",
		[10] = "NOT_SUPPORTED", "REMOTE", "PROTOCOL", "TOO_SMALL", "FORKED", "INTERNAL", "EXPIRED",
		"REFUSED", "NO_MEMORY",
	};
	if (code < 0 || (size_t)code >= sizeof names / sizeof *names || !names[code])
		return "?";
	return names[code];
}

const char *stepvan_version(void)
{
	return forked ? "" : goVersion();
}

int64_t stepvan_get_nanosecond(void)
{
	return forked ? 0 : goGetNanosecond();
}

uint64_t stepvan_released(uint64_t *owners, uint64_t capacity)
{
	if (forked || __atomic_load_n(&boundary_released, __ATOMIC_RELAXED) == 0)
		return 0;
	return goReleased(owners, capacity);
}

int32_t stepvan_main(int32_t argc, const char *const *argv, int32_t selfc, const char *const *self)
{
	return forked ? 125 : goMain(argc, (char **)argv, selfc, (char **)self);
}

int32_t stepvan_start(const stepvan_setting *settings, uint64_t count, int64_t timeout_ns, uint64_t *node,
        stepvan_error *error)
{
	return forked ? refuse(error) : goStart((stepvan_setting *)settings, count, timeout_ns, node, error);
}

int32_t stepvan_start_wait(uint64_t node, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goStartWait(node, timeout_ns, error);
}

int32_t stepvan_stop(uint64_t node, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goStop(node, timeout_ns, error);
}

int32_t stepvan_close(uint64_t node, stepvan_error *error)
{
	return forked ? refuse(error) : goClose(node, error);
}

int32_t stepvan_info(uint64_t node, stepvan_node_info *info, stepvan_error *error)
{
	return forked ? refuse(error) : goInfo(node, info, error);
}

int32_t stepvan_peer_info(uint64_t node, uint32_t *rank, uint32_t *size, stepvan_error *error)
{
	return forked ? refuse(error) : goPeerInfo(node, rank, size, error);
}

int32_t stepvan_health(uint64_t node, stepvan_error *error)
{
	return forked ? refuse(error) : goHealth(node, error);
}

int32_t stepvan_peers(uint64_t node, stepvan_peer *peers, uint64_t capacity, uint64_t *count, stepvan_error *error)
{
	return forked ? refuse(error) : goPeers(node, peers, capacity, count, error);
}

int32_t stepvan_barrier(uint64_t node, uint32_t groups, int32_t per_instance, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goBarrier(node, groups, per_instance, timeout_ns, error);
}

int32_t stepvan_alloc(uint64_t node, uint64_t bytes, uint32_t flags, void **data, uint64_t *memory,
        stepvan_error *error)
{
	return forked ? refuse(error) : goAlloc(node, bytes, flags, data, memory, error);
}

int32_t stepvan_wrap(void *data, uint64_t bytes, uint64_t owner, uint64_t *memory, stepvan_error *error)
{
	return forked ? refuse(error) : goWrap(data, bytes, owner, memory, error);
}

int32_t stepvan_free(uint64_t memory, stepvan_error *error)
{
	return forked ? refuse(error) : goFree(memory, error);
}

int32_t stepvan_push_pull(uint64_t node, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goPushPull(node, (stepvan_exchange *)exchange, handle, error);
}

int32_t stepvan_push_pull_on(uint64_t node, uint64_t stream, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goPushPullOn(node, stream, (stepvan_exchange *)exchange, handle, error);
}

int32_t stepvan_wait_on(uint64_t node, uint64_t handle, uint32_t device_kind, uint32_t device, uint64_t stream,
        int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goWaitOn(node, handle, device_kind, device, stream, timeout_ns, error);
}

int32_t stepvan_respond_on(uint64_t node, uint64_t stream, uint64_t handler, const stepvan_tensor *tensors,
        uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goRespondOn(node, stream, handler, (stepvan_tensor *)tensors, count, owner, response, error);
}

int32_t stepvan_respond_vec_on(uint64_t node, uint64_t stream, const stepvan_tensor *tensor, const int64_t *rows,
        const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goRespondVecOn(node, stream, (stepvan_tensor *)tensor, (int64_t *)rows, (uint64_t *)handlers, count, owner, response, error);
}

int32_t stepvan_wait(uint64_t node, uint64_t handle, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goWait(node, handle, timeout_ns, error);
}

int32_t stepvan_done(uint64_t node, uint64_t handle, int32_t *done, stepvan_error *error)
{
	return forked ? refuse(error) : goDone(node, handle, done, error);
}

int32_t stepvan_operations(uint64_t node, uint64_t handle, uint64_t *count, stepvan_error *error)
{
	return forked ? refuse(error) : goOperations(node, handle, count, error);
}

int32_t stepvan_trace(uint64_t node, uint64_t handle, int64_t *stamps, stepvan_error *error)
{
	return forked ? refuse(error) : goTrace(node, handle, stamps, error);
}

int32_t stepvan_traces(uint64_t node, uint64_t handle, int64_t *stamps, uint64_t capacity, uint64_t *count,
        stepvan_error *error)
{
	return forked ? refuse(error) : goTraces(node, handle, stamps, capacity, count, error);
}

int32_t stepvan_lengths(uint64_t node, uint64_t handle, int64_t *lengths, uint64_t capacity, uint64_t *count,
        stepvan_error *error)
{
	return forked ? refuse(error) : goLengths(node, handle, lengths, capacity, count, error);
}

int32_t stepvan_register(uint64_t node, const stepvan_tensor *tensor, uint64_t owner, uint64_t *registration,
        stepvan_error *error)
{
	return forked ? refuse(error) : goRegister(node, (stepvan_tensor *)tensor, owner, registration, error);
}

int32_t stepvan_registers(uint64_t node, int32_t *registers, stepvan_error *error)
{
	return forked ? refuse(error) : goRegisters(node, registers, error);
}

int32_t stepvan_register_recv_buffer(uint64_t node, const stepvan_tensor *tensor, uint64_t owner,
        const uint32_t *ranks, const uint64_t *keys, uint64_t count, int64_t timeout_ns, uint64_t *registration,
        stepvan_error *error)
{
	if (forked) {
		if (registration != NULL)
			*registration = 0;
		return refuse(error);
	}
	return goRegisterRecvBuffer(node, (stepvan_tensor *)tensor, owner, (uint32_t *)ranks, (uint64_t *)keys, count, timeout_ns, registration, error);
}

int32_t stepvan_registration_wait(uint64_t registration, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goRegistrationWait(registration, timeout_ns, error);
}

int32_t stepvan_unregister(uint64_t registration, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goUnregister(registration, timeout_ns, error);
}

int32_t stepvan_get_batch(uint64_t node, int32_t policy, uint32_t flags, int64_t timeout_ns,
        stepvan_batch *batch, stepvan_error *error)
{
	return forked ? refuse(error) : goGetBatch(node, policy, flags, timeout_ns, batch, error);
}

int32_t stepvan_request_in(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error)
{
	return forked ? refuse(error) : goRequestIn(node, handler, i, tensor, error);
}

int32_t stepvan_request_out(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error)
{
	return forked ? refuse(error) : goRequestOut(node, handler, i, tensor, error);
}

int32_t stepvan_keep(uint64_t node, uint64_t handler, const void *data, uint64_t *memory, stepvan_error *error)
{
	return forked ? refuse(error) : goKeep(node, handler, (void *)data, memory, error);
}

int32_t stepvan_respond(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count,
        uint64_t owner, uint64_t *response, stepvan_error *error)
{
	return forked ? refuse(error) : goRespond(node, handler, (stepvan_tensor *)tensors, count, owner, response, error);
}

int32_t stepvan_respond_copy(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count,
        uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error)
{
	return forked ? refuse(error) : goRespondCopy(node, handler, (stepvan_tensor *)tensors, count, owner, response, borrowed, error);
}

int32_t stepvan_respond_vec(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows,
        const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goRespondVec(node, (stepvan_tensor *)tensor, (int64_t *)rows, (uint64_t *)handlers, count, owner, response, error);
}

int32_t stepvan_respond_vec_copy(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows,
        const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goRespondVecCopy(node, (stepvan_tensor *)tensor, (int64_t *)rows, (uint64_t *)handlers, count, owner, response, borrowed, error);
}

int32_t stepvan_response_wait(uint64_t node, uint64_t response, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goResponseWait(node, response, timeout_ns, error);
}

int32_t stepvan_response_done(uint64_t node, uint64_t response, int32_t *done, stepvan_error *error)
{
	return forked ? refuse(error) : goResponseDone(node, response, done, error);
}

int32_t stepvan_queue_open(uint64_t *queue, int32_t *fd, stepvan_error *error)
{
	return forked ? refuse(error) : goQueueOpen(queue, fd, error);
}

int32_t stepvan_queue_take(uint64_t queue, uint64_t *tokens, uint64_t capacity, uint64_t *count, stepvan_error *error)
{
	return forked ? refuse(error) : goQueueTake(queue, tokens, capacity, count, error);
}

int32_t stepvan_queue_close(uint64_t queue, stepvan_error *error)
{
	return forked ? refuse(error) : goQueueClose(queue, error);
}

int32_t stepvan_notify(uint64_t node, uint64_t handle, uint64_t queue, uint64_t token, stepvan_error *error)
{
	return forked ? refuse(error) : goNotify(node, handle, queue, token, error);
}

int32_t stepvan_response_notify(uint64_t node, uint64_t response, uint64_t queue, uint64_t token, stepvan_error *error)
{
	return forked ? refuse(error) : goResponseNotify(node, response, queue, token, error);
}

int32_t stepvan_send(uint64_t node, const stepvan_view *view, uint32_t to, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goSend(node, (stepvan_view *)view, to, tag, owner, handle, error);
}

int32_t stepvan_recv(uint64_t node, const stepvan_view *view, uint32_t from, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goRecv(node, (stepvan_view *)view, from, tag, owner, handle, error);
}

int32_t stepvan_cancel(uint64_t node, uint64_t handle, int32_t *cancelled, stepvan_error *error)
{
	return forked ? refuse(error) : goCancel(node, handle, cancelled, error);
}

int32_t stepvan_plan(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const stepvan_move *recvs,
        uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goPlan(node, (char *)name, (stepvan_move *)sends, send_count, (stepvan_move *)recvs, recv_count, owner, timeout_ns, plan, error);
}

int32_t stepvan_plan_with(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const stepvan_move *recvs,
        uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goPlanWith(node, (char *)name, (stepvan_move *)sends, send_count, (stepvan_move *)recvs, recv_count, flags, owner, timeout_ns, plan, error);
}

int32_t stepvan_plan_begin(uint64_t plan, uint64_t version, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goPlanBegin(plan, version, handle, error);
}

int32_t stepvan_plan_state(uint64_t plan, uint64_t *offered, uint64_t *version, stepvan_plan_stats *stats, stepvan_error *error)
{
	return forked ? refuse(error) : goPlanState(plan, offered, version, stats, error);
}

int32_t stepvan_plan_close(uint64_t plan, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goPlanClose(plan, timeout_ns, error);
}

int32_t stepvan_group(uint64_t node, const char *name, const uint32_t *ranks, uint64_t count, uint64_t *group, stepvan_error *error)
{
	return forked ? refuse(error) : goGroup(node, (char *)name, (uint32_t *)ranks, count, group, error);
}

int32_t stepvan_group_barrier(uint64_t group, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goGroupBarrier(group, handle, error);
}

int32_t stepvan_group_all_gather(uint64_t group, const void *data, uint64_t bytes, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goGroupAllGather(group, (void *)data, bytes, handle, error);
}

int32_t stepvan_group_broadcast(uint64_t group, const stepvan_view *view, uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goGroupBroadcast(group, (stepvan_view *)view, root, owner, handle, error);
}

int32_t stepvan_group_reduce(uint64_t group, const stepvan_view *view, const stepvan_view *into, uint32_t merge, uint32_t root,
        uint64_t owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goGroupReduce(group, (stepvan_view *)view, (stepvan_view *)into, merge, root, owner, handle, error);
}

int32_t stepvan_gathered(uint64_t node, uint64_t handle, uint64_t member, void *data, uint64_t capacity, uint64_t *bytes, stepvan_error *error)
{
	return forked ? refuse(error) : goGathered(node, handle, member, data, capacity, bytes, error);
}

int32_t stepvan_group_close(uint64_t group, stepvan_error *error)
{
	return forked ? refuse(error) : goGroupClose(group, error);
}

int32_t stepvan_group_forget(uint64_t group, stepvan_error *error)
{
	return forked ? refuse(error) : goGroupForget(group, error);
}

int32_t stepvan_agent(uint64_t node, const char *path, uint64_t queue, uint64_t *agent, stepvan_error *error)
{
	return forked ? refuse(error) : goAgent(node, (char *)path, queue, agent, error);
}

int32_t stepvan_agent_close(uint64_t agent, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goAgentClose(agent, timeout_ns, error);
}

int32_t stepvan_mail(uint64_t node, uint32_t to, const char *topic, const void *body, uint64_t bytes, stepvan_error
        *error)
{
	return forked ? refuse(error) : goMail(node, to, (char *)topic, (void *)body, bytes, error);
}

int32_t stepvan_listen(uint64_t node, const char *topic, uint64_t *mailbox, stepvan_error *error)
{
	return forked ? refuse(error) : goListen(node, (char *)topic, mailbox, error);
}

int32_t stepvan_mailbox_next(uint64_t mailbox, int64_t timeout_ns, uint32_t *from, void *data, uint64_t capacity,
        uint64_t *bytes, stepvan_error *error)
{
	return forked ? refuse(error) : goMailboxNext(mailbox, timeout_ns, from, data, capacity, bytes, error);
}

int32_t stepvan_mailbox_notify(uint64_t mailbox, uint64_t queue, uint64_t token, stepvan_error *error)
{
	return forked ? refuse(error) : goMailboxNotify(mailbox, queue, token, error);
}

int32_t stepvan_mailbox_close(uint64_t mailbox, stepvan_error *error)
{
	return forked ? refuse(error) : goMailboxClose(mailbox, error);
}

int32_t stepvan_expose(uint64_t node, const stepvan_view *view, uint32_t flags, const uint32_t *peers, uint64_t
        count, uint64_t owner, uint64_t *window, uint8_t *token, uint64_t *notes, stepvan_error *error)
{
	return forked ? refuse(error) : goExpose(node, (stepvan_view *)view, flags, (uint32_t *)peers, count, owner, window, token, notes, error);
}

int32_t stepvan_unexpose(uint64_t window, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goUnexpose(window, timeout_ns, error);
}

int32_t stepvan_get(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, uint64_t
        owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goGet(node, (stepvan_view *)view, (uint8_t *)token, (int64_t *)at, owner, handle, error);
}

int32_t stepvan_put(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, const void
        *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goPut(node, (stepvan_view *)view, (uint8_t *)token, (int64_t *)at, (void *)note, note_bytes, owner, handle, error);
}

int32_t stepvan_put_rows(uint64_t node, const stepvan_view *view, const int64_t *rows, uint64_t count, const uint8_t
        *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle,
        stepvan_error *error)
{
	return forked ? refuse(error) : goPutRows(node, (stepvan_view *)view, (int64_t *)rows, count, (uint8_t *)token, (int64_t *)at, (void *)note, note_bytes, owner, handle, error);
}

int32_t stepvan_post(uint64_t node, const char *key, const void *value, uint64_t bytes, uint64_t *handle,
        stepvan_error *error)
{
	return forked ? refuse(error) : goPost(node, (char *)key, (void *)value, bytes, handle, error);
}

int32_t stepvan_unpost(uint64_t node, const char *key, uint64_t *handle, stepvan_error *error)
{
	return forked ? refuse(error) : goUnpost(node, (char *)key, handle, error);
}

int32_t stepvan_watch(uint64_t node, const char *prefix, uint64_t *watch, stepvan_error *error)
{
	return forked ? refuse(error) : goWatch(node, (char *)prefix, watch, error);
}

int32_t stepvan_watch_next(uint64_t watch, int64_t timeout_ns, uint64_t *count, stepvan_error *error)
{
	return forked ? refuse(error) : goWatchNext(watch, timeout_ns, count, error);
}

int32_t stepvan_watch_entry(uint64_t watch, uint64_t i, stepvan_entry *entry, stepvan_error *error)
{
	return forked ? refuse(error) : goWatchEntry(watch, i, entry, error);
}

int32_t stepvan_watch_close(uint64_t watch, stepvan_error *error)
{
	return forked ? refuse(error) : goWatchClose(watch, error);
}

int32_t stepvan_part_of_spans(const int64_t *shape, uint32_t rank, const stepvan_span *spans, const uint32_t
        *counts, stepvan_bytes *part, stepvan_error *error)
{
	return forked ? refuse(error) : goPartOfSpans((int64_t *)shape, rank, (stepvan_span *)spans, (uint32_t *)counts, part, error);
}

int32_t stepvan_part_of_mesh(const int64_t *shape, uint32_t rank, const uint32_t *mesh, const stepvan_placement
        *placements, uint32_t dims, uint64_t index, stepvan_bytes *part, stepvan_error *error)
{
	return forked ? refuse(error) : goPartOfMesh((int64_t *)shape, rank, (uint32_t *)mesh, (stepvan_placement *)placements, dims, index, part, error);
}

int32_t stepvan_part_of_partition(const int64_t *shape, uint32_t rank, const stepvan_partition *partition, uint64_t
        number, stepvan_bytes *part, stepvan_error *error)
{
	return forked ? refuse(error) : goPartOfPartition((int64_t *)shape, rank, (stepvan_partition *)partition, number, part, error);
}

int32_t stepvan_part_shape(const stepvan_bytes *part, int64_t *shape, int64_t *local, uint32_t *rank, stepvan_error
        *error)
{
	return forked ? refuse(error) : goPartShape((stepvan_bytes *)part, shape, local, rank, error);
}

int32_t stepvan_match(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count, const
        stepvan_named *recvs, uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error)
{
	return forked ? refuse(error) : goMatch(group, (char *)name, (stepvan_named *)sends, send_count, (stepvan_named *)recvs, recv_count, owner, timeout_ns, plan, error);
}

int32_t stepvan_match_with(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count, const
        stepvan_named *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error)
{
	return forked ? refuse(error) : goMatchWith(group, (char *)name, (stepvan_named *)sends, send_count, (stepvan_named *)recvs, recv_count, flags, owner, timeout_ns, plan, error);
}

int32_t stepvan_reshard_plan(const stepvan_bytes *rosters, uint64_t count, uint32_t world, uint64_t batch_bytes,
        uint32_t flags, const uint32_t *ranks, uint64_t plan_count, stepvan_bytes *plans, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goReshardPlan((stepvan_bytes *)rosters, count, world, batch_bytes, flags, (uint32_t *)ranks, plan_count, plans, error);
}

int32_t stepvan_reshard_check(const void *plan, uint64_t bytes, stepvan_error *error)
{
	return forked ? refuse(error) : goReshardCheck((void *)plan, bytes, error);
}

int32_t stepvan_reshard_source(const stepvan_bytes *sources, uint64_t count, const stepvan_bytes *destination,
        uint32_t *rank, stepvan_error *error)
{
	return forked ? refuse(error)
	              : goReshardSource((stepvan_bytes *)sources, count, (stepvan_bytes *)destination, rank, error);
}

int32_t stepvan_particle_open(uint64_t node, const stepvan_particle_options *options, uint64_t *loop,
        stepvan_error *error)
{
	return forked ? refuse(error) : goParticleOpen(node, (stepvan_particle_options *)options, loop, error);
}

int32_t stepvan_particle_close(uint64_t loop, int64_t timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleClose(loop, timeout_ns, error);
}

int32_t stepvan_particle_create(uint64_t loop, uint32_t rank, uint32_t device, uint64_t *particle, uint64_t
        *future, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleCreate(loop, rank, device, particle, future, error);
}

int32_t stepvan_particle_list(uint64_t loop, stepvan_particle_place *places, uint64_t capacity, uint64_t *count,
        stepvan_error *error)
{
	return forked ? refuse(error) : goParticleList(loop, places, capacity, count, error);
}

int32_t stepvan_particle_hook(uint64_t loop, uint64_t particle, const char *name, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleHook(loop, particle, (char *)name, error);
}

int32_t stepvan_particle_release(uint64_t value, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleRelease(value, error);
}

int32_t stepvan_particle_send(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, const char *name,
        const stepvan_particle_value *value, uint64_t owner, uint64_t *future, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleSend(loop, call, from, particle, (char *)name, (stepvan_particle_value *)value, owner, future, error);
}

int32_t stepvan_particle_get(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, uint64_t *future,
        stepvan_error *error)
{
	return forked ? refuse(error) : goParticleGet(loop, call, from, particle, future, error);
}

int32_t stepvan_particle_wait(uint64_t loop, uint64_t call, const uint64_t *futures, uint64_t count, int64_t
        timeout_ns, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleWait(loop, call, (uint64_t *)futures, count, timeout_ns, error);
}

int32_t stepvan_particle_is_done(uint64_t loop, uint64_t future, int32_t *done, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleIsDone(loop, future, done, error);
}

int32_t stepvan_particle_notify(uint64_t loop, uint64_t future, uint64_t queue, uint64_t token, stepvan_error
        *error)
{
	return forked ? refuse(error) : goParticleNotify(loop, future, queue, token, error);
}

int32_t stepvan_particle_result(uint64_t loop, uint64_t future, stepvan_particle_value *value, stepvan_error
        *error)
{
	return forked ? refuse(error) : goParticleResult(loop, future, value, error);
}

int32_t stepvan_particle_failure(uint64_t loop, uint64_t future, char *text, uint64_t capacity, uint64_t *bytes,
        stepvan_error *error)
{
	return forked ? refuse(error) : goParticleFailure(loop, future, text, capacity, bytes, error);
}

int32_t stepvan_particle_forget(uint64_t loop, uint64_t future, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleForget(loop, future, error);
}

int32_t stepvan_particle_next(uint64_t loop, uint32_t device, int64_t timeout_ns, stepvan_particle_call *call,
        stepvan_error *error)
{
	return forked ? refuse(error) : goParticleNext(loop, device, timeout_ns, call, error);
}

int32_t stepvan_particle_done(uint64_t loop, uint64_t call, const stepvan_particle_value *value, const char
        *failure, uint64_t owner, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleDone(loop, call, (stepvan_particle_value *)value, (char *)failure, owner, error);
}

int32_t stepvan_particle_share(uint64_t loop, uint64_t particle, const stepvan_particle_value *value, uint64_t
        owner, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleShare(loop, particle, (stepvan_particle_value *)value, owner, error);
}

int32_t stepvan_particle_views(uint64_t loop, uint64_t particle, uint64_t *views, stepvan_error *error)
{
	return forked ? refuse(error) : goParticleViews(loop, particle, views, error);
}
