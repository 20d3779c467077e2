/*
 * libstepvan.so, loaded at the first use. It brings Go's runtime, which does not survive a fork. Because of the
 * late load a program may import stepvan, fork, and use it in the child, in the parent, or in both.
 *
 * Each function of stepvan.h that the extension calls has a row here: it loads the library and calls the library's
 * own. A function without a row is an undefined symbol, which the import of stepvan reports.
 */
#define _GNU_SOURCE /* dladdr */
#include "core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* X(result, name, parameters, arguments, result when the library cannot be loaded) */
#define FUNCTIONS(X) \
	X(const char *, version, (void), (), "") \
	X(uint32_t, abi_version, (void), (), 0) \
	X(int64_t, get_nanosecond, (void), (), 0) \
	X(int32_t, main, (int32_t argc, const char *const *argv, int32_t selfc, const char *const *self), (argc, argv, selfc, self), 125) \
	X(int32_t, start, (const stepvan_setting *settings, uint64_t count, int64_t timeout_ns, uint64_t *node, stepvan_error *error), (settings, count, timeout_ns, node, error), failed(error)) \
	X(int32_t, start_wait, (uint64_t node, int64_t timeout_ns, stepvan_error *error), (node, timeout_ns, error), failed(error)) \
	X(int32_t, stop, (uint64_t node, int64_t timeout_ns, stepvan_error *error), (node, timeout_ns, error), failed(error)) \
	X(int32_t, close, (uint64_t node, stepvan_error *error), (node, error), failed(error)) \
	X(int32_t, info, (uint64_t node, stepvan_node_info *info, stepvan_error *error), (node, info, error), failed(error)) \
	X(int32_t, peer_info, (uint64_t node, uint32_t *rank, uint32_t *size, stepvan_error *error), (node, rank, size, error), failed(error)) \
	X(int32_t, health, (uint64_t node, stepvan_error *error), (node, error), failed(error)) \
	X(int32_t, peers, (uint64_t node, stepvan_peer *peers, uint64_t capacity, uint64_t *count, stepvan_error *error), (node, peers, capacity, count, error), failed(error)) \
	X(int32_t, barrier, (uint64_t node, uint32_t groups, int32_t per_instance, int64_t timeout_ns, stepvan_error *error), (node, groups, per_instance, timeout_ns, error), failed(error)) \
	X(int32_t, alloc, (uint64_t node, uint64_t bytes, uint32_t flags, void **data, uint64_t *memory, stepvan_error *error), (node, bytes, flags, data, memory, error), failed(error)) \
	X(int32_t, wrap, (void *data, uint64_t bytes, uint64_t owner, uint64_t *memory, stepvan_error *error), (data, bytes, owner, memory, error), failed(error)) \
	X(int32_t, free, (uint64_t memory, stepvan_error *error), (memory, error), failed(error)) \
	X(int32_t, push_pull, (uint64_t node, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error), (node, exchange, handle, error), failed(error)) \
	X(int32_t, push_pull_on, (uint64_t node, uint64_t stream, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error), (node, stream, exchange, handle, error), failed(error)) \
	X(int32_t, wait, (uint64_t node, uint64_t handle, int64_t timeout_ns, stepvan_error *error), (node, handle, timeout_ns, error), failed(error)) \
	X(int32_t, done, (uint64_t node, uint64_t handle, int32_t *done, stepvan_error *error), (node, handle, done, error), failed(error)) \
	X(int32_t, operations, (uint64_t node, uint64_t handle, uint64_t *count, stepvan_error *error), (node, handle, count, error), failed(error)) \
	X(int32_t, trace, (uint64_t node, uint64_t handle, int64_t *stamps, stepvan_error *error), (node, handle, stamps, error), failed(error)) \
	X(int32_t, traces, (uint64_t node, uint64_t handle, int64_t *stamps, uint64_t capacity, uint64_t *count, stepvan_error *error), (node, handle, stamps, capacity, count, error), failed(error)) \
	X(int32_t, lengths, (uint64_t node, uint64_t handle, int64_t *lengths, uint64_t capacity, uint64_t *count, stepvan_error *error), (node, handle, lengths, capacity, count, error), failed(error)) \
	X(int32_t, register, (uint64_t node, const stepvan_tensor *tensor, uint64_t owner, uint64_t *registration, stepvan_error *error), (node, tensor, owner, registration, error), failed(error)) \
	X(int32_t, registers, (uint64_t node, int32_t *registers, stepvan_error *error), (node, registers, error), failed(error)) \
	X(int32_t, register_recv_buffer, (uint64_t node, const stepvan_tensor *tensor, uint64_t owner, const uint32_t *ranks, const uint64_t *keys, uint64_t count, int64_t timeout_ns, uint64_t *registration, stepvan_error *error), (node, tensor, owner, ranks, keys, count, timeout_ns, registration, error), failed(error)) \
	X(int32_t, registration_wait, (uint64_t registration, int64_t timeout_ns, stepvan_error *error), (registration, timeout_ns, error), failed(error)) \
	X(int32_t, unregister, (uint64_t registration, int64_t timeout_ns, stepvan_error *error), (registration, timeout_ns, error), failed(error)) \
	X(int32_t, get_batch, (uint64_t node, int32_t policy, uint32_t flags, int64_t timeout_ns, stepvan_batch *batch, stepvan_error *error), (node, policy, flags, timeout_ns, batch, error), failed(error)) \
	X(int32_t, request_in, (uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error), (node, handler, i, tensor, error), failed(error)) \
	X(int32_t, request_out, (uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error), (node, handler, i, tensor, error), failed(error)) \
	X(int32_t, keep, (uint64_t node, uint64_t handler, const void *data, uint64_t *memory, stepvan_error *error), (node, handler, data, memory, error), failed(error)) \
	X(int32_t, respond, (uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error), (node, handler, tensors, count, owner, response, error), failed(error)) \
	X(int32_t, respond_vec, (uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error), (node, tensor, rows, handlers, count, owner, response, error), failed(error)) \
	X(int32_t, respond_on, (uint64_t node, uint64_t stream, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error), (node, stream, handler, tensors, count, owner, response, error), failed(error)) \
	X(int32_t, respond_vec_on, (uint64_t node, uint64_t stream, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error), (node, stream, tensor, rows, handlers, count, owner, response, error), failed(error)) \
	X(int32_t, respond_copy, (uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error), (node, handler, tensors, count, owner, response, borrowed, error), failed(error)) \
	X(int32_t, respond_vec_copy, (uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error), (node, tensor, rows, handlers, count, owner, response, borrowed, error), failed(error)) \
	X(int32_t, response_wait, (uint64_t node, uint64_t response, int64_t timeout_ns, stepvan_error *error), (node, response, timeout_ns, error), failed(error)) \
	X(int32_t, response_done, (uint64_t node, uint64_t response, int32_t *done, stepvan_error *error), (node, response, done, error), failed(error)) \
	X(int32_t, queue_open, (uint64_t *queue, int32_t *fd, stepvan_error *error), (queue, fd, error), failed(error)) \
	X(int32_t, queue_take, (uint64_t queue, uint64_t *tokens, uint64_t capacity, uint64_t *count, stepvan_error *error), (queue, tokens, capacity, count, error), failed(error)) \
	X(int32_t, queue_close, (uint64_t queue, stepvan_error *error), (queue, error), failed(error)) \
	X(int32_t, notify, (uint64_t node, uint64_t handle, uint64_t queue, uint64_t token, stepvan_error *error), (node, handle, queue, token, error), failed(error)) \
	X(int32_t, send, (uint64_t node, const stepvan_view *view, uint32_t to, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error), (node, view, to, tag, owner, handle, error), failed(error)) \
	X(int32_t, recv, (uint64_t node, const stepvan_view *view, uint32_t from, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error), (node, view, from, tag, owner, handle, error), failed(error)) \
	X(int32_t, cancel, (uint64_t node, uint64_t handle, int32_t *cancelled, stepvan_error *error), (node, handle, cancelled, error), failed(error)) \
	X(int32_t, plan_with, (uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const stepvan_move *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error), (node, name, sends, send_count, recvs, recv_count, flags, owner, timeout_ns, plan, error), failed(error)) \
	X(int32_t, plan_begin, (uint64_t plan, uint64_t version, uint64_t *handle, stepvan_error *error), (plan, version, handle, error), failed(error)) \
	X(int32_t, plan_state, (uint64_t plan, uint64_t *offered, uint64_t *version, stepvan_plan_stats *stats, stepvan_error *error), (plan, offered, version, stats, error), failed(error)) \
	X(int32_t, plan_close, (uint64_t plan, int64_t timeout_ns, stepvan_error *error), (plan, timeout_ns, error), failed(error)) \
	X(int32_t, group, (uint64_t node, const char *name, const uint32_t *ranks, uint64_t count, uint64_t *group, stepvan_error *error), (node, name, ranks, count, group, error), failed(error)) \
	X(int32_t, group_barrier, (uint64_t group, uint64_t *handle, stepvan_error *error), (group, handle, error), failed(error)) \
	X(int32_t, group_all_gather, (uint64_t group, const void *data, uint64_t bytes, uint64_t *handle, stepvan_error *error), (group, data, bytes, handle, error), failed(error)) \
	X(int32_t, group_broadcast, (uint64_t group, const stepvan_view *view, uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error), (group, view, root, owner, handle, error), failed(error)) \
	X(int32_t, group_reduce, (uint64_t group, const stepvan_view *view, const stepvan_view *into, uint32_t merge, uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error), (group, view, into, merge, root, owner, handle, error), failed(error)) \
	X(int32_t, gathered, (uint64_t node, uint64_t handle, uint64_t member, void *data, uint64_t capacity, uint64_t *bytes, stepvan_error *error), (node, handle, member, data, capacity, bytes, error), failed(error)) \
	X(int32_t, group_close, (uint64_t group, stepvan_error *error), (group, error), failed(error)) \
	X(int32_t, group_forget, (uint64_t group, stepvan_error *error), (group, error), failed(error)) \
	X(int32_t, agent, (uint64_t node, const char *path, uint64_t queue, uint64_t *agent, stepvan_error *error), (node, path, queue, agent, error), failed(error)) \
	X(int32_t, agent_close, (uint64_t agent, int64_t timeout_ns, stepvan_error *error), (agent, timeout_ns, error), failed(error)) \
	X(int32_t, particle_open, (uint64_t node, const stepvan_particle_options *options, uint64_t *loop, stepvan_error *error), (node, options, loop, error), failed(error)) \
	X(int32_t, particle_close, (uint64_t loop, int64_t timeout_ns, stepvan_error *error), (loop, timeout_ns, error), failed(error)) \
	X(int32_t, particle_create, (uint64_t loop, uint32_t rank, uint32_t device, uint64_t *particle, uint64_t *future, stepvan_error *error), (loop, rank, device, particle, future, error), failed(error)) \
	X(int32_t, particle_list, (uint64_t loop, stepvan_particle_place *places, uint64_t capacity, uint64_t *count, stepvan_error *error), (loop, places, capacity, count, error), failed(error)) \
	X(int32_t, particle_hook, (uint64_t loop, uint64_t particle, const char *name, stepvan_error *error), (loop, particle, name, error), failed(error)) \
	X(int32_t, particle_release, (uint64_t value, stepvan_error *error), (value, error), failed(error)) \
	X(int32_t, particle_send, (uint64_t loop, uint64_t call, int64_t from, uint64_t particle, const char *name, const stepvan_particle_value *value, uint64_t owner, uint64_t *future, stepvan_error *error), (loop, call, from, particle, name, value, owner, future, error), failed(error)) \
	X(int32_t, particle_get, (uint64_t loop, uint64_t call, int64_t from, uint64_t particle, uint64_t *future, stepvan_error *error), (loop, call, from, particle, future, error), failed(error)) \
	X(int32_t, particle_wait, (uint64_t loop, uint64_t call, const uint64_t *futures, uint64_t count, int64_t timeout_ns, stepvan_error *error), (loop, call, futures, count, timeout_ns, error), failed(error)) \
	X(int32_t, particle_is_done, (uint64_t loop, uint64_t future, int32_t *done, stepvan_error *error), (loop, future, done, error), failed(error)) \
	X(int32_t, particle_notify, (uint64_t loop, uint64_t future, uint64_t queue, uint64_t token, stepvan_error *error), (loop, future, queue, token, error), failed(error)) \
	X(int32_t, particle_result, (uint64_t loop, uint64_t future, stepvan_particle_value *value, stepvan_error *error), (loop, future, value, error), failed(error)) \
	X(int32_t, particle_failure, (uint64_t loop, uint64_t future, char *text, uint64_t capacity, uint64_t *bytes, stepvan_error *error), (loop, future, text, capacity, bytes, error), failed(error)) \
	X(int32_t, particle_forget, (uint64_t loop, uint64_t future, stepvan_error *error), (loop, future, error), failed(error)) \
	X(int32_t, particle_next, (uint64_t loop, uint32_t device, int64_t timeout_ns, stepvan_particle_call *call, stepvan_error *error), (loop, device, timeout_ns, call, error), failed(error)) \
	X(int32_t, particle_done, (uint64_t loop, uint64_t call, const stepvan_particle_value *value, const char *failure, uint64_t owner, stepvan_error *error), (loop, call, value, failure, owner, error), failed(error)) \
	X(int32_t, particle_share, (uint64_t loop, uint64_t particle, const stepvan_particle_value *value, uint64_t owner, stepvan_error *error), (loop, particle, value, owner, error), failed(error)) \
	X(int32_t, particle_views, (uint64_t loop, uint64_t particle, uint64_t *views, stepvan_error *error), (loop, particle, views, error), failed(error)) \
	X(int32_t, mail, (uint64_t node, uint32_t to, const char *topic, const void *body, uint64_t bytes, stepvan_error *error), (node, to, topic, body, bytes, error), failed(error)) \
	X(int32_t, listen, (uint64_t node, const char *topic, uint64_t *mailbox, stepvan_error *error), (node, topic, mailbox, error), failed(error)) \
	X(int32_t, mailbox_next, (uint64_t mailbox, int64_t timeout_ns, uint32_t *from, void *data, uint64_t capacity, uint64_t *bytes, stepvan_error *error), (mailbox, timeout_ns, from, data, capacity, bytes, error), failed(error)) \
	X(int32_t, mailbox_notify, (uint64_t mailbox, uint64_t queue, uint64_t token, stepvan_error *error), (mailbox, queue, token, error), failed(error)) \
	X(int32_t, mailbox_close, (uint64_t mailbox, stepvan_error *error), (mailbox, error), failed(error)) \
	X(int32_t, expose, (uint64_t node, const stepvan_view *view, uint32_t flags, const uint32_t *peers, uint64_t count, uint64_t owner, uint64_t *window, uint8_t *token, uint64_t *notes, stepvan_error *error), (node, view, flags, peers, count, owner, window, token, notes, error), failed(error)) \
	X(int32_t, unexpose, (uint64_t window, int64_t timeout_ns, stepvan_error *error), (window, timeout_ns, error), failed(error)) \
	X(int32_t, get, (uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, uint64_t owner, uint64_t *handle, stepvan_error *error), (node, view, token, at, owner, handle, error), failed(error)) \
	X(int32_t, put, (uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error), (node, view, token, at, note, note_bytes, owner, handle, error), failed(error)) \
	X(int32_t, put_rows, (uint64_t node, const stepvan_view *view, const int64_t *rows, uint64_t count, const uint8_t *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error), (node, view, rows, count, token, at, note, note_bytes, owner, handle, error), failed(error)) \
	X(int32_t, post, (uint64_t node, const char *key, const void *value, uint64_t bytes, uint64_t *handle, stepvan_error *error), (node, key, value, bytes, handle, error), failed(error)) \
	X(int32_t, unpost, (uint64_t node, const char *key, uint64_t *handle, stepvan_error *error), (node, key, handle, error), failed(error)) \
	X(int32_t, watch, (uint64_t node, const char *prefix, uint64_t *watch, stepvan_error *error), (node, prefix, watch, error), failed(error)) \
	X(int32_t, watch_next, (uint64_t watch, int64_t timeout_ns, uint64_t *count, stepvan_error *error), (watch, timeout_ns, count, error), failed(error)) \
	X(int32_t, watch_entry, (uint64_t watch, uint64_t i, stepvan_entry *entry, stepvan_error *error), (watch, i, entry, error), failed(error)) \
	X(int32_t, watch_close, (uint64_t watch, stepvan_error *error), (watch, error), failed(error)) \
	X(int32_t, part_of_spans, (const int64_t *shape, uint32_t rank, const stepvan_span *spans, const uint32_t *counts, stepvan_bytes *part, stepvan_error *error), (shape, rank, spans, counts, part, error), failed(error)) \
	X(int32_t, part_of_mesh, (const int64_t *shape, uint32_t rank, const uint32_t *mesh, const stepvan_placement *placements, uint32_t dims, uint64_t index, stepvan_bytes *part, stepvan_error *error), (shape, rank, mesh, placements, dims, index, part, error), failed(error)) \
	X(int32_t, part_of_partition, (const int64_t *shape, uint32_t rank, const stepvan_partition *partition, uint64_t number, stepvan_bytes *part, stepvan_error *error), (shape, rank, partition, number, part, error), failed(error)) \
	X(int32_t, part_shape, (const stepvan_bytes *part, int64_t *shape, int64_t *local, uint32_t *rank, stepvan_error *error), (part, shape, local, rank, error), failed(error)) \
	X(int32_t, match_with, (uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count, const stepvan_named *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error), (group, name, sends, send_count, recvs, recv_count, flags, owner, timeout_ns, plan, error), failed(error)) \
	X(int32_t, reshard_plan, (const stepvan_bytes *rosters, uint64_t count, uint32_t world, uint64_t batch_bytes, uint32_t flags, const uint32_t *ranks, uint64_t plan_count, stepvan_bytes *plans, stepvan_error *error), (rosters, count, world, batch_bytes, flags, ranks, plan_count, plans, error), failed(error)) \
	X(int32_t, reshard_check, (const void *plan, uint64_t bytes, stepvan_error *error), (plan, bytes, error), failed(error)) \
	X(int32_t, reshard_source, (const stepvan_bytes *sources, uint64_t count, const stepvan_bytes *destination, uint32_t *rank, stepvan_error *error), (sources, count, destination, rank, error), failed(error)) \
	X(int32_t, response_notify, (uint64_t node, uint64_t response, uint64_t queue, uint64_t token, stepvan_error *error), (node, response, queue, token, error), failed(error))

static uint64_t (*own_released)(uint64_t *, uint64_t);

#define POINTER(type, name, parameters, arguments, otherwise) static type (*own_##name) parameters;
FUNCTIONS(POINTER)
#undef POINTER

#define ROW(type, name, parameters, arguments, otherwise) {"stepvan_" #name, (void **)&own_##name},
static const struct {
	const char *name;
	void **function;
} rows[] = {FUNCTIONS(ROW){"stepvan_released", (void **)&own_released}};
#undef ROW

static char path[4096];       /* of the library; absolute, as the program may change its folder before the first use */
static const char *first_use; /* the function that loaded the library; NULL: not loaded */
static int forked;            /* in a child that was forked after that */
static char problem[4608];    /* why the library could not be loaded */
static int loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* A fork waits for a load by another thread. */
static void before_fork(void)
{
	pthread_mutex_lock(&loading);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&loading);
}

static void in_child(void)
{
	forked = first_use != NULL;
	pthread_mutex_unlock(&loading);
}

/* Finds the library beside the extension. */
int library_find(void)
{
	static int watching;
	Dl_info self;
	char *full = dladdr((void *)(uintptr_t)&library_find, &self) != 0 ? realpath(self.dli_fname, NULL) : NULL;
	char *end = full != NULL ? strrchr(full, '/') : NULL;
	int fits = end != NULL && (size_t)snprintf(path, sizeof path, "%.*s/libstepvan.so", (int)(end - full), full) < sizeof path;
	free(full);
	if (!fits || access(path, R_OK) != 0) {
		PyErr_Format(PyExc_ImportError, "stepvan: %s: libstepvan.so cannot be read: install stepvan again", path);
		return -1;
	}
	if (!watching)
		pthread_atfork(before_fork, after_fork, in_child);
	watching = 1;
	return 0;
}

/* Sets the pointers to the library's functions. On failure problem has the reason. */
static int bind_functions(void)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(problem, sizeof problem, "stepvan: %s: install stepvan again", dlerror());
		return -1;
	}
	for (Py_ssize_t i = 0; i < COUNT(rows); i++) {
		*rows[i].function = dlsym(library, rows[i].name);
		if (*rows[i].function == NULL) {
			snprintf(problem, sizeof problem, "stepvan: %s: it has no %s: install stepvan again", path, rows[i].name);
			return -1;
		}
	}
	if (own_abi_version() != STEPVAN_ABI_VERSION) {
		snprintf(problem, sizeof problem, "stepvan: %s: wrong version of the C interface (got %u, want %d): install stepvan again", path, (unsigned)own_abi_version(), STEPVAN_ABI_VERSION);
		return -1;
	}
	return 0;
}

static int load(const char *use)
{
	pthread_mutex_lock(&loading);
	if (first_use == NULL && problem[0] == 0) {
		first_use = use; /* a library that fails to load may have brought Go's runtime */
		if (bind_functions() == 0)
			__atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&loading);
	return problem[0] == 0 ? 0 : -1;
}

static inline int ready(const char *use)
{
	return __builtin_expect(__atomic_load_n(&loaded, __ATOMIC_ACQUIRE), 1) || load(use) == 0;
}

/* Loads the library for `use`, a name that the program knows. The interpreter lock is held, so os.fork waits. */
int library_load(const char *use)
{
	if (ready(use))
		return 0;
	PyErr_SetString(PyExc_ImportError, problem);
	return -1;
}

/* The function that loaded the library before this process was forked; NULL where the library is usable. */
const char *library_forked(void)
{
	return forked ? first_use : NULL;
}

static int32_t failed(stepvan_error *error)
{
	if (error != NULL) {
		memset(error, 0, sizeof *error);
		error->code = STEPVAN_INTERNAL;
		strncpy(error->message, problem, sizeof error->message - 1);
	}
	return STEPVAN_INTERNAL;
}

#define FORWARD(type, name, parameters, arguments, otherwise) \
	type stepvan_##name parameters \
	{ \
		return ready("stepvan_" #name) ? own_##name arguments : (otherwise); \
	}
FUNCTIONS(FORWARD)
#undef FORWARD

/* A library that is not loaded has released nothing. */
uint64_t stepvan_released(uint64_t *owners, uint64_t capacity)
{
	return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE) ? own_released(owners, capacity) : 0;
}
