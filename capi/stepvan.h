/*
 * stepvan: push tensors to servers, and pull their answers. The C interface of
 * libstepvan.so, for C11, C++11 and whatever can call C.
 *
 * A worker's exchange:
 *
 *     stepvan_start(NULL, 0, -1, &node, &error);        join the cluster of the environment
 *     stepvan_alloc(node, bytes, 0, &data, &memory, &error);
 *     stepvan_push_pull(node, &exchange, &handle, &error);
 *     stepvan_wait(node, handle, -1, &error);
 *     stepvan_stop(node, -1, &error);
 *     stepvan_close(node, &error);
 *
 * and a server's: stepvan_get_batch, stepvan_respond. A whole program of both is
 * examples/c/exchange.c.
 *
 * ERRORS. Every function that can fail returns a stepvan_code, 0 for success. The
 * last parameter takes the message: the caller's struct, which is written only
 * when the result is not 0, and may be NULL. An error is final for the call and
 * nothing else, but for STEPVAN_INTERNAL, and what is wrong with the arguments
 * (NULL where something must be, numbers that name nothing, sizes that do not fit)
 * is STEPVAN_INVALID or STEPVAN_STALE. Results are written on success only, except where a
 * function says otherwise. What cannot be checked is that a pointer points to as
 * much memory as is said.
 *
 * MISTAKES OF THE LIBRARY. A panic in the library ends the node, and not the process: its
 * waits and operations return STEPVAN_INTERNAL, whose message names version, node, peer and
 * operation, and the node's log has the stack. Its connections break, so that the others
 * see it die. stepvan_stop says the same at once; then call stepvan_close. Other nodes of
 * the process go on. Owners come back, but those of operations under way may not. There are
 * two cases in which the process ends, by SIGABRT: the panic has left a lock locked, so that
 * the node cannot be closed, which is found after five seconds, and its report is then on
 * standard error; or Go's runtime cannot go on ("fatal error"). STEPVAN_PANIC_AFTER
 * rehearses all but the last. Please report such mistakes.
 *
 * NUMBERS. Nodes, handles, handlers, responses, registrations, memories and
 * queues are 64-bit numbers, never 0, and 0 names none. A number that was given
 * back is not given out again: it is STEPVAN_STALE. With a node that was closed, or whose
 * start has failed, every function says STEPVAN_CLOSED.
 *
 * TIME is in nanoseconds (int64_t). A limit below 0 means for ever, 0 means: look
 * once. STEPVAN_TIMEOUT changes nothing: the same call, made again, goes on
 * waiting. So a caller that must look for signals waits in slices of, say, 50 ms.
 *
 * THREADS. Every function may be called from any thread, at any time, except that
 * get_batch of a node has one caller at a time (a second gets STEPVAN_BUSY), and that
 * what one call gives back must not be used by another that is under way. Waits
 * do the node's work on the caller's thread and hold no lock meanwhile. The library
 * has threads of its own; it takes over no signal handler but those that Go needs
 * for faults, SIGPIPE and preemption (SIGURG), which pass on what is not theirs.
 *
 * FORK. The library cannot live in a forked child: there every function returns
 * STEPVAN_FORKED, and touches nothing. A child that executes a program is in order.
 *
 * MEMORY. See stepvan_tensor. No function returns memory of the Go heap.
 *
 * OWNERS. An owner is a number of the caller, not 0, like the address of what keeps tensors
 * alive. A function that is given one takes it when it returns 0, and then it comes back by
 * stepvan_released, once, however the operation ends, and in no other way. One that returns an
 * error has not taken it, and it does not come back. Only stepvan_register_recv_buffer can
 * also have taken it with an error: when it writes a registration other than 0.
 */
#ifndef STEPVAN_H
#define STEPVAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It changes when a struct or the meaning of a
 * function does; see stepvan_abi_version. */
#define STEPVAN_ABI_VERSION 2

/* What a function returns. */
typedef enum stepvan_code {
	STEPVAN_OK             = 0,
	STEPVAN_TIMEOUT        = 1,  /* the limit of time has passed; it can be waited for again */
	STEPVAN_CLOSED         = 2,  /* stopped or closed by this program, or everybody has left */
	STEPVAN_PEER_LOST      = 3,  /* a peer died or its connection broke; subject names it */
	STEPVAN_CONFIG         = 4,  /* a setting is missing or wrong; subject names the variable */
	STEPVAN_INVALID        = 5,  /* an argument contradicts the contract; nothing was done */
	STEPVAN_BUSY           = 6,  /* belongs to an unanswered request, or is in use */
	STEPVAN_WOULD_BLOCK    = 7,  /* full: wait for something outstanding and try again */
	STEPVAN_STALE          = 8,  /* what the number named is gone, or never was */
	/* 9 is reserved */
	STEPVAN_NOT_SUPPORTED  = 10, /* not in this build, van or device */
	STEPVAN_REMOTE         = 11, /* refused by the peer, whose reason is the message */
	STEPVAN_PROTOCOL       = 12, /* a peer sent what cannot be */
	STEPVAN_TOO_SMALL      = 13, /* an array of the caller is too small; the counts say what is needed */
	STEPVAN_FORKED         = 14, /* in a forked child: see above */
	STEPVAN_INTERNAL       = 15, /* a mistake of the library, which may have ended the node, or of the system; the message is for its authors */
	STEPVAN_EXPIRED        = 16, /* a limit of the settings has passed: STEPVAN_START_TIMEOUT, STEPVAN_STOP_TIMEOUT */
	STEPVAN_REFUSED        = 17, /* this server refused a request, so its batch failed; the next batch is complete */
	STEPVAN_NO_MEMORY      = 18, /* the system or container has no memory left for it: free some, or ask for less */
} stepvan_code;

/* An error. Texts are UTF-8, end with 0, and are cut where they are longer. */
typedef struct stepvan_error {
	int32_t code;      /* what the function returned */
	int32_t reserved;  /* 0 */
	char subject[120]; /* the variable of STEPVAN_CONFIG, the peer ("worker 3") where one is concerned; else "" */
	char message[896]; /* says what is wrong and what to do */
} stepvan_error;

/* Element types, with the numbers that travel. Float4 packs two numbers in an
 * element of one byte. */
typedef enum stepvan_dtype {
	STEPVAN_BOOL = 1,
	STEPVAN_UINT8 = 2,
	STEPVAN_INT8 = 3,
	STEPVAN_UINT16 = 4,
	STEPVAN_INT16 = 5,
	STEPVAN_UINT32 = 6,
	STEPVAN_INT32 = 7,
	STEPVAN_UINT64 = 8,
	STEPVAN_INT64 = 9,
	STEPVAN_FLOAT16 = 10,
	STEPVAN_BFLOAT16 = 11,
	STEPVAN_FLOAT32 = 12,
	STEPVAN_FLOAT64 = 13,
	STEPVAN_COMPLEX32 = 14,
	STEPVAN_COMPLEX64 = 15,
	STEPVAN_COMPLEX128 = 16,
	STEPVAN_FLOAT8_E4M3FN = 17,
	STEPVAN_FLOAT8_E5M2 = 18,
	STEPVAN_FLOAT8_E4M3FNUZ = 19,
	STEPVAN_FLOAT8_E5M2FNUZ = 20,
	STEPVAN_FLOAT8_E8M0FNU = 21,
	STEPVAN_FLOAT4_E2M1FN_X2 = 22,
} stepvan_dtype;

/* The most dimensions of a tensor. */
#define STEPVAN_MAX_RANK 8

/* Flags of a stepvan_tensor. */
#define STEPVAN_VARIABLE 1u  /* a pull: may be answered with fewer bytes (stepvan_lengths) */
#define STEPVAN_READ_ONLY 2u /* a push, given by the library: a write may end the process */

/*
 * A tensor: contiguous memory with an element type and a shape.
 *
 * As an argument, `memory` says whose it is:
 *
 *   - A number of stepvan_alloc or stepvan_wrap: data must lie in that memory.
 *     Operations keep the memory: stepvan_free returns at once, and the memory
 *     goes when the last of them has ended. So nothing else need be kept.
 *   - 0: memory of the caller, who keeps it until the operation is over. When that is,
 *     the `owner` given with the operation tells: see stepvan_released. A caller without
 *     one must know by itself: a handle that succeeded, or a response that is
 *     done, has given everything back; of one that failed the servers concerned
 *     may reach the tensors for some time. Memory that the library gave with
 *     a request may be given to the respond of that request; it need not be kept.
 *
 * As a result it belongs to a request, and ends with its respond; memory is 0.
 */
typedef struct stepvan_tensor {
	void *data;
	uint64_t bytes;  /* those of shape and dtype; anything else is refused */
	uint64_t memory; /* see above */
	uint8_t dtype;   /* stepvan_dtype */
	uint8_t rank;    /* dimensions, at most STEPVAN_MAX_RANK; 0 is a scalar: one element */
	uint16_t flags;
	uint32_t reserved; /* 0 */
	int64_t shape[STEPVAN_MAX_RANK]; /* outermost first; those from rank on are not looked at */
} stepvan_tensor;

/* ------------------------------------------------------------------ library */

/* The version of the library, as in "v1.2.3"; "(devel)" for a build without one,
 * with the commit where Go knows it. Static memory. */
const char *stepvan_version(void);

/* STEPVAN_ABI_VERSION of the library. A program that loads it at run time compares
 * it with that of its header before anything else. */
uint32_t stepvan_abi_version(void);

/* The name of a code, "TIMEOUT"; "?" when there is none. Static memory. */
const char *stepvan_code_name(int32_t code);

/* The time in ns since 1970 by the clock of the traces: it never steps back. 0 in
 * a forked child. */
int64_t stepvan_get_nanosecond(void);

/*
 * Runs the command line of the program `stepvan` (launch, doctor, bench, env, ...)
 * with the environment of this moment, and returns its exit code: 0 for success, 2
 * for a command line that cannot be understood, 125 where it cannot be run at all: in a
 * forked child, with NULL among the arguments, while another thread is in it.
 *
 *   argc, argv   the arguments without the program's name
 *   selfc, self  the command that runs this very function with the arguments that
 *                follow it, for commands that start further processes: ("python3",
 *                "-m", "stepvan"). NULL: the program of this process without arguments.
 *
 * It writes to standard output and error by file descriptors 1 and 2: flush
 * before. While a command runs it handles SIGINT and SIGTERM.
 */
int32_t stepvan_main(int32_t argc, const char *const *argv, int32_t selfc, const char *const *self);

/* --------------------------------------------------------------------- node */

/* A setting, that goes before the environment: "DMLC_ROLE", "worker". A value of
 * NULL counts as not set. docs/settings.md lists all. */
typedef struct stepvan_setting {
	const char *name;
	const char *value;
} stepvan_setting;

/* Roles, and groups of a barrier (join them with |). A joint process is worker and
 * server. */
#define STEPVAN_WORKER 1u
#define STEPVAN_SERVER 2u
#define STEPVAN_JOINT 3u
#define STEPVAN_SCHEDULER 4u

/*
 * Starts a node by the environment of this moment and `count` settings: joins the
 * cluster, gets a rank, connects, and passes the start barrier. *node gets its
 * number at once, before the cluster is complete.
 *
 * STEPVAN_TIMEOUT: not started yet. *node is written, and stepvan_start_wait goes
 * on; stepvan_close gives up. Every other error has closed all that was opened, and
 * *node is 0: STEPVAN_CONFIG (subject is the variable to change; the message names all
 * mistakes), STEPVAN_REMOTE (the scheduler refuses this node), STEPVAN_PEER_LOST
 * (somebody died meanwhile). A cluster that is not complete within
 * STEPVAN_START_TIMEOUT (10 min by default) is STEPVAN_EXPIRED, with who is missing.
 */
int32_t stepvan_start(const stepvan_setting *settings, uint64_t count, int64_t timeout_ns, uint64_t *node, stepvan_error *error);

/* Waits until the node has started: as stepvan_start, for one that said
 * STEPVAN_TIMEOUT. After any other error the number is that of a closed node. Functions that
 * need a started node say STEPVAN_BUSY before. */
int32_t stepvan_start_wait(uint64_t node, int64_t timeout_ns, stepvan_error *error);

/*
 * Stops the node: waits until every node of the cluster that lives has called it,
 * however long they take, then leaves. From the call on a worker's operations are
 * STEPVAN_CLOSED; a server may go on serving until it returns, best until get_batch
 * says STEPVAN_CLOSED.
 *
 * STEPVAN_TIMEOUT: others have not stopped yet; the next call goes on waiting, and
 * stepvan_close leaves without them. STEPVAN_EXPIRED: STEPVAN_STOP_TIMEOUT has
 * passed, and the message says who had not stopped. STEPVAN_PEER_LOST: the cluster did not
 * live to its end. STEPVAN_INTERNAL: a mistake of the library had ended the node. But for STEPVAN_TIMEOUT everything is closed then, and further calls
 * return the same. The node's number
 * stays valid: finished handles can be read, and requests that are not answered
 * keep their memory until they are responded to (which says STEPVAN_CLOSED).
 */
int32_t stepvan_stop(uint64_t node, int64_t timeout_ns, stepvan_error *error);

/*
 * Ends the node's number, and whatever goes on with it: a start is given up, and a node
 * whose stop still waits leaves at once, without the others. A node that was never
 * stopped is dead for the others, as if its process had been killed. Waits of other threads
 * end with STEPVAN_CLOSED. It takes no longer than a few seconds. Then every function says
 * STEPVAN_CLOSED of the node, and so of its handles, handlers and responses, and of a
 * registration that it had STEPVAN_CLOSED or, later, STEPVAN_STALE. Tensors of requests
 * that were not answered must not be used any more; memories of stepvan_alloc stay.
 */
int32_t stepvan_close(uint64_t node, stepvan_error *error);

/* What a node is. Constant but for root_port, which a scheduler knows before it has
 * started. */
typedef struct stepvan_node_info {
	uint32_t role;       /* STEPVAN_WORKER, _SERVER, _JOINT or _SCHEDULER */
	int32_t worker_rank; /* -1 when it is no worker */
	int32_t server_rank; /* -1 when it is no server */
	uint32_t servers;    /* S: servers that a broadcast of this worker reaches */
	uint32_t workers;    /* paired with this server */
	uint32_t root_port;  /* the scheduler's port, of a scheduler; 0 when not known */
} stepvan_node_info;

/* Tells what a node is. Ranks and counts are -1 and 0 before it has started. */
int32_t stepvan_info(uint64_t node, stepvan_node_info *info, stepvan_error *error);

/* Why the cluster works no more, as the error (STEPVAN_PEER_LOST, with the node that
 * died); STEPVAN_OK while it does, and after a stop in order. */
int32_t stepvan_health(uint64_t node, stepvan_error *error);

/* Somebody that this node exchanges tensors with. */
typedef struct stepvan_peer {
	uint32_t role;     /* STEPVAN_WORKER or STEPVAN_SERVER */
	int32_t rank;      /* of the instance, within its role */
	int32_t node_rank; /* of the node that it belongs to */
	int32_t instance;  /* index within that node */
	int32_t pid;
	int32_t connected; /* 1 when van and reason are known */
	char host[64];
	char van[16];      /* "shm", "tcp", "unix", "mem" */
	char reason[128];  /* why that one: "same machine" */
} stepvan_peer;

/* Lists the peers, by role and rank: a worker's servers, a server's workers; a
 * scheduler's are all nodes that live. *count is always how many there are; with
 * STEPVAN_TOO_SMALL the first `capacity` were written. peers may be NULL when
 * capacity is 0. */
int32_t stepvan_peers(uint64_t node, stepvan_peer *peers, uint64_t capacity, uint64_t *count, stepvan_error *error);

/*
 * Waits until every member of the groups has called it with these groups: every instance or,
 * when per_instance is 0, one instance of every node. groups is STEPVAN_WORKER,
 * STEPVAN_SERVER or both, with STEPVAN_SCHEDULER where the scheduler takes part, too; this node
 * must be in one (STEPVAN_INVALID).
 * After STEPVAN_TIMEOUT the next call over the same groups continues this barrier.
 */
int32_t stepvan_barrier(uint64_t node, uint32_t groups, int32_t per_instance, int64_t timeout_ns, stepvan_error *error);

/* ------------------------------------------------------------------- memory */

/* Flags of stepvan_alloc. */
#define STEPVAN_ZEROED 1u

/*
 * Allocates memory that other processes of this machine and user can reach without a
 * copy: tensors in it are read and written where they lie. Aligned to 64 bytes, to
 * a page from one page on; not zeroed without STEPVAN_ZEROED. It outlives the node. bytes
 * is at least 1.
 */
int32_t stepvan_alloc(uint64_t node, uint64_t bytes, uint32_t flags, void **data, uint64_t *memory, stepvan_error *error);

/*
 * Names memory of the caller, so that operations can keep it: see stepvan_tensor.
 * It stays valid until stepvan_released returns owner, or when owner is 0 until the last
 * operation on it has ended after stepvan_free. Needs no node.
 */
int32_t stepvan_wrap(void *data, uint64_t bytes, uint64_t owner, uint64_t *memory, stepvan_error *error);

/* Gives memory of stepvan_alloc, stepvan_wrap or stepvan_keep up. The number is stale at once.
 * The memory must not be used any more but by operations that are under way, after whose
 * last it is gone. */
int32_t stepvan_free(uint64_t memory, stepvan_error *error);

/*
 * Takes owners whose memory nobody uses any more, and returns how many were
 * written. An owner is a number that the caller gave with an operation, not 0, like the
 * address of what keeps the tensors alive; each that was taken is returned once: see OWNERS.
 * One whose memory nobody had to use comes back at once, like that of tensors that all name
 * their memory. With nothing to tell it costs a few ns: call it often, from the
 * program's threads, for the library calls back nobody. 0 in a forked child.
 */
uint64_t stepvan_released(uint64_t *owners, uint64_t capacity);

/* ------------------------------------------------------------------- worker */

/* Which servers an exchange concerns. */
typedef enum stepvan_routing {
	STEPVAN_ROUTING_DEFAULT = 0, /* that of STEPVAN_ROUTING */
	STEPVAN_BROADCAST = 1,       /* all; pulls are server-major: server s writes pull s*P+i */
	STEPVAN_BY_KEY = 2,          /* each tensor: the owner of its key; pulls in plain order */
	STEPVAN_NAMED = 3,           /* each tensor: the server that is named for it; pulls in plain order */
} stepvan_routing;

/* One push_pull. Zero it, then fill in; it is read during the call only, with all arrays. */
typedef struct stepvan_exchange {
	const stepvan_tensor *push;
	const uint64_t *push_keys; /* one per push */
	const stepvan_tensor *pull; /* may have STEPVAN_VARIABLE */
	const uint64_t *pull_keys; /* one per pull */
	uint64_t pushes;
	uint64_t pulls;
	uint64_t owner; /* of tensors whose memory is 0: see stepvan_released; 0: none */
	uint32_t routing; /* stepvan_routing */
	uint32_t pair_with_push; /* 1: pull i is answered by the server that push i goes to */
	const uint32_t *push_to; /* with STEPVAN_NAMED: ranks of servers, one per push, or one for all */
	const uint32_t *pull_to;
	uint64_t push_to_count; /* 0: the owner of each key */
	uint64_t pull_to_count;
	const char *label; /* groups exchanges in traces, or NULL. Each text is kept for ever, 4096 at most */
} stepvan_exchange;

/*
 * Sends every push tensor to its servers and has them write the pull tensors. It
 * never blocks: the handle tells the end. The tensors are borrowed until then (see
 * stepvan_tensor).
 *
 * The pulls of one exchange must share no memory, nor may a pull share memory with a push
 * that goes to another server than the one which answers it: chance would decide what is
 * there. STEPVAN_INVALID names the two. A push may be the pull of its own server (its answer
 * takes its place), pushes may share memory with each other, and tensors of 0 bytes share none.
 * With STEPVAN_BROADCAST and several servers every push goes to all, so no pull may share
 * memory with one. Of exchanges that are in flight at once the caller must see to that.
 *
 * With an error nothing was sent: STEPVAN_INVALID; STEPVAN_BUSY: a push key still has
 * an unanswered push, or a tensor may still be used by a server of an exchange that
 * failed; STEPVAN_WOULD_BLOCK: too much is outstanding, wait for a handle and try again;
 * STEPVAN_PEER_LOST; STEPVAN_CLOSED.
 */
int32_t stepvan_push_pull(uint64_t node, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error);

/*
 * Waits until every server has answered: it has received the pushes and the pulls are
 * written, or it has responded to an exchange without pulls. Returns how the exchange
 * ended: 0; STEPVAN_PEER_LOST or STEPVAN_REMOTE, with the server; STEPVAN_TIMEOUT, with a
 * server that has not answered: the exchange can be waited for again. A finished handle returns at once, as often as wanted, until
 * STEPVAN_HANDLES later ones (65,536 by default) have finished; then it is STEPVAN_STALE.
 */
int32_t stepvan_wait(uint64_t node, uint64_t handle, int64_t timeout_ns, stepvan_error *error);

/* Writes 1 to *done when stepvan_wait would return at once, else 0. It does not drive
 * progress. */
int32_t stepvan_done(uint64_t node, uint64_t handle, int32_t *done, stepvan_error *error);

/* Tells how many operations an exchange has: its pushes, then the pulls of one server.
 * They share its completion and its traces, and so its number. */
int32_t stepvan_operations(uint64_t node, uint64_t handle, uint64_t *count, stepvan_error *error);

/* The stamps of an exchange, by index, in ns (stepvan_get_nanosecond): 0, 1, 6, 7 on
 * the worker's clock, 2 to 5 on the server's, 0 where it has not answered: request start,
 * post-send, post-recv, process; response start, post-send, post-recv, process. */
#define STEPVAN_STAMPS 8

/* Writes the STEPVAN_STAMPS stamps of a finished exchange; with several servers, those of
 * the one that finished last. */
int32_t stepvan_trace(uint64_t node, uint64_t handle, int64_t *stamps, stepvan_error *error);

/* Writes the stamps of each server that a finished exchange concerned, STEPVAN_STAMPS
 * numbers each: by rank for a broadcast, else in the order in which the tensors name them.
 * capacity counts servers; *count is always how many there are. */
int32_t stepvan_traces(uint64_t node, uint64_t handle, int64_t *stamps, uint64_t capacity, uint64_t *count, stepvan_error *error);

/* Writes how many bytes of each pull tensor of a finished exchange were written. It must
 * have had a pull with STEPVAN_VARIABLE (STEPVAN_INVALID). *count is always how many pulls
 * there are. */
int32_t stepvan_lengths(uint64_t node, uint64_t handle, int64_t *lengths, uint64_t capacity, uint64_t *count, stepvan_error *error);

/*
 * Prepares the memory of a tensor that is pushed or pulled again and again (pins or maps
 * it, where a van needs that), until stepvan_unregister. Registering the same memory again
 * gives a further number for the same registration. The tensor's memory is not 0, or
 * stays the caller's to keep until owner is released.
 */
int32_t stepvan_register(uint64_t node, const stepvan_tensor *tensor, uint64_t owner, uint64_t *registration, stepvan_error *error);

/* ------------------------------------------------------------------- server */

/*
 * Cuts the tensor's bytes evenly over the lists: chunk i receives in place what worker
 * ranks[i] pushes with keys[i], from the time this returns. Requests then show views of
 * the chunks. The memory is held until the registration has ended: see owner and
 * stepvan_unregister. Registering a (rank, key) again replaces its chunk.
 *
 * It waits until the workers know. STEPVAN_TIMEOUT: not all do yet, or it may still be refused,
 * and stepvan_registration_wait goes on. Other errors: STEPVAN_INVALID (bytes that do not
 * divide, alignment, memory of another registration, a rank that is not paired),
 * STEPVAN_BUSY (a request on a chunk to be replaced is unanswered), STEPVAN_CLOSED.
 *
 * *registration is always written: the number, with 0 and STEPVAN_TIMEOUT, or 0. With another
 * error it is 0 when nothing came about. It is not 0 when the node ended meanwhile and may still
 * use the memory: the registration ends with the node then, and owner was taken. So owner was
 * taken exactly when *registration is not 0.
 */
int32_t stepvan_register_recv_buffer(uint64_t node, const stepvan_tensor *tensor, uint64_t owner, const uint32_t *ranks, const uint64_t *keys, uint64_t count, int64_t timeout_ns, uint64_t *registration, stepvan_error *error);

/* Waits until the workers know of the registration or, after stepvan_unregister, until
 * they have let go. Errors are those of stepvan_register_recv_buffer: one that did not come about
 * has ended with the first that says so, which makes its number stale; its owner comes back by
 * stepvan_released. */
int32_t stepvan_registration_wait(uint64_t registration, int64_t timeout_ns, stepvan_error *error);

/*
 * Ends a registration of either side. With a receive buffer, later pushes land in pooled
 * memory, and the buffer is the program's again on success. STEPVAN_BUSY: a request on one of its
 * chunks is unanswered, and nothing has changed. STEPVAN_TIMEOUT: it has ended, but a
 * worker has not let go: call again. The number is stale after success.
 */
int32_t stepvan_unregister(uint64_t registration, int64_t timeout_ns, stepvan_error *error);

/* Policies of stepvan_get_batch: what a batch waits for. A positive number: requests of at
 * least so many workers. */
#define STEPVAN_POLICY_DEFAULT 0 /* that of STEPVAN_BATCH */
#define STEPVAN_LOCK_STEP (-1)   /* one request of every paired worker */
#define STEPVAN_ANY_READY 1      /* a request of any worker */

/* One worker's request in a batch. */
typedef struct stepvan_request {
	uint64_t handler;    /* for the respond */
	uint32_t worker;     /* rank */
	uint32_t pushes;     /* of the batch's push array, from first_push on */
	uint32_t pulls;      /* of the batch's pull array, from first_pull on */
	uint32_t reserved;   /* 0 */
	uint64_t first_push;
	uint64_t first_pull;
} stepvan_request;

/*
 * A batch: arrays of the caller, with their capacities, and how many of each were written.
 * With STEPVAN_TOO_SMALL the counts are what is needed, nothing was written, and the
 * batch stays to be taken by the next call, whatever its policy.
 */
typedef struct stepvan_batch {
	stepvan_request *requests;
	stepvan_tensor *push;  /* what was pushed: the program's until the respond */
	uint64_t *push_keys;   /* one per push, as many as push has room for */
	stepvan_tensor *pull;  /* what the answer must be: bytes, dtype, shape, STEPVAN_VARIABLE; data is NULL */
	uint64_t *pull_keys;   /* one per pull */
	uint64_t request_capacity;
	uint64_t push_capacity;
	uint64_t pull_capacity;
	uint64_t requests_count;
	uint64_t push_count;
	uint64_t pull_count;
} stepvan_batch;

/* Flags of stepvan_get_batch. */
#define STEPVAN_VIEWS 1u /* pushes may be the worker's own tensors: those that are have STEPVAN_READ_ONLY, as of stepvan_request_in */

/*
 * Waits for requests of the paired workers by the policy, and takes from each worker that
 * has one waiting the one that it issued first. Requests are ordered by worker. Being
 * idle is no error. Pushes are memory that may be written to, until the respond: the
 * registered chunk, else pooled memory; what the worker has left in its own memory is copied
 * there, unless flags has STEPVAN_VIEWS.
 *
 * STEPVAN_TIMEOUT: nothing was taken. STEPVAN_REFUSED, in lock-step: this server had to refuse
 * the request of the worker that subject names (larger than its chunk or than the pool, for
 * example). The other workers' requests of that batch end with STEPVAN_REMOTE, and the next
 * call gets the next request of every worker. STEPVAN_CLOSED: every worker has left, which is the
 * time to stop; or this node was stopped. STEPVAN_PEER_LOST: the policy cannot be met without
 * a worker that is gone. STEPVAN_BUSY: another thread is in get_batch.
 */
int32_t stepvan_get_batch(uint64_t node, int32_t policy, uint32_t flags, int64_t timeout_ns, stepvan_batch *batch, stepvan_error *error);

/* Gives push i of a request to be read where it is: the worker's own tensor where that can be
 * seen, without a copy. It must not be written to, and ends with the respond. */
int32_t stepvan_request_in(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error);

/* Gives memory for the answer to pull i: the worker's own tensor where it can be reached, so
 * that a respond with it sends no bytes; else pooled memory. It holds anything at first, and
 * may be read and written until the respond. It answers no other pull. The same each time. */
int32_t stepvan_request_out(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error);

/*
 * Keeps memory that the library gave with a request, a push or that of stepvan_request_in or _out,
 * named by its address: it may be looked at until stepvan_free of the number, also after
 * the respond. What is written to it then is lost, or gets into the worker's tensor.
 */
int32_t stepvan_keep(uint64_t node, uint64_t handler, const void *data, uint64_t *memory, stepvan_error *error);

/*
 * Answers the pulls of a request, in their order, once; without pulls, with none, which
 * ends the worker's exchange. It returns at once. The tensors are borrowed until the
 * response is done (see stepvan_tensor; owner and the response tell), those of the
 * request itself by the library. A worker gets other numbers when they are changed before
 * that, which STEPVAN_CHECK_BORROWED=1 finds: see stepvan_respond_copy. response may be NULL.
 *
 * With an error nothing was sent, and the request is still to be answered: STEPVAN_INVALID
 * (count or sizes do not fit the pulls), STEPVAN_STALE (answered before),
 * STEPVAN_WOULD_BLOCK (the queue to the worker is full), STEPVAN_CLOSED (stopped: the request is
 * gone).
 */
int32_t stepvan_respond(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);

/*
 * Answers several requests with consecutive rows (dimension 0) of one tensor: rows[i] of
 * them answer handlers[i]; with several pulls per request they are cut further, by the
 * pulls' own row counts. Surplus rows are ignored. All or, on an error, none.
 */
int32_t stepvan_respond_vec(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);

/*
 * stepvan_respond and stepvan_respond_vec for programs that use their tensors again at once. With
 * *borrowed 0 the tensors are the caller's again when it returns: the library has written
 * them into the worker's memory, handed them to the kernel, or copied them. With 1, when
 * STEPVAN_POOL_BYTES left no room for a copy, they are borrowed until the response is
 * done: wait for it before you change them. It never waits, and a full queue to the worker is
 * no error. owner comes back by stepvan_released in either case. Neither response nor borrowed
 * may be NULL.
 */
int32_t stepvan_respond_copy(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error);
int32_t stepvan_respond_vec_copy(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error);

/* Waits until the workers have acknowledged a response: its tensors are the caller's again.
 * STEPVAN_PEER_LOST: a worker was lost before. It stays valid as handles do. */
int32_t stepvan_response_wait(uint64_t node, uint64_t response, int64_t timeout_ns, stepvan_error *error);

/* Writes 1 to *done when stepvan_response_wait would return at once, else 0. */
int32_t stepvan_response_done(uint64_t node, uint64_t response, int32_t *done, stepvan_error *error);

/* -------------------------------------------------------------- event loops */

/*
 * A queue tells an event loop what has ended. Its file descriptor (an eventfd, of the
 * library: do not close or read it) is readable while there are tokens to take. For
 * asyncio: add_reader(fd), and in it stepvan_queue_take.
 */
int32_t stepvan_queue_open(uint64_t *queue, int32_t *fd, stepvan_error *error);

/* Takes tokens, in the order of what ended first. It never waits: *count may be 0. */
int32_t stepvan_queue_take(uint64_t queue, uint64_t *tokens, uint64_t capacity, uint64_t *count, stepvan_error *error);

/* Closes a queue and its descriptor. What was to be told is told nobody. */
int32_t stepvan_queue_close(uint64_t queue, stepvan_error *error);

/* Has `token` put into the queue, once, when stepvan_wait would return at once, whether the
 * exchange went well or not. The background driver waits meanwhile, or whoever waits
 * for something of the node. */
int32_t stepvan_notify(uint64_t node, uint64_t handle, uint64_t queue, uint64_t token, stepvan_error *error);

/* The same for a response: when stepvan_response_wait would return at once. */
int32_t stepvan_response_notify(uint64_t node, uint64_t response, uint64_t queue, uint64_t token, stepvan_error *error);

#ifdef __cplusplus
}
#endif

#endif
