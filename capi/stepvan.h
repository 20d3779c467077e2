/*
 * stepvan: push tensors to servers, and pull their answers. This is the C interface of
 * libstepvan.so, for C11, C++11 and every language that can call C.
 *
 * A worker's exchange:
 *
 *     stepvan_start(NULL, 0, -1, &node, &error);        joins the cluster of the environment
 *     stepvan_alloc(node, bytes, 0, &data, &memory, &error);
 *     stepvan_push_pull(node, &exchange, &handle, &error);
 *     stepvan_wait(node, handle, -1, &error);
 *     stepvan_stop(node, -1, &error);
 *     stepvan_close(node, &error);
 *
 * A server calls stepvan_get_batch and stepvan_respond. examples/c/exchange.c is a whole program
 * with both sides.
 *
 * ERRORS. Every function that can fail returns a stepvan_code, 0 for success. Its last parameter
 * takes the message. It is a struct of the caller and may be NULL; the function writes it only when
 * the result is not 0. An error ends only the call, except STEPVAN_INTERNAL. Wrong arguments are
 * STEPVAN_INVALID or STEPVAN_STALE: NULL where a pointer is needed, numbers that name nothing,
 * sizes that do not fit. A function writes its results on success only, unless its comment says
 * otherwise. The library cannot check that a pointer points to as much memory as the caller says.
 *
 * MISTAKES OF THE LIBRARY. A panic in the library ends the node, and leaves the process alive.
 * Waits and operations of the node return STEPVAN_INTERNAL. The message names version, node, peer
 * and operation, and the node's log has the stack. The connections of the node break, so the others
 * see it die. stepvan_stop returns STEPVAN_INTERNAL at once; then call stepvan_close. Other nodes
 * of the process continue. Owners come back, except perhaps the owners of unfinished operations.
 *
 * The process itself ends, by SIGABRT, in two cases. In the first, the panic has left a lock
 * locked, and the node cannot be closed. The library finds this after five seconds, and writes the
 * report to standard error. In the second, Go's runtime fails ("fatal error"). STEPVAN_PANIC_AFTER
 * tests all but the second case. Please report such mistakes.
 *
 * NUMBERS. Nodes, handles, handlers, responses, registrations, memories, queues, plans, groups,
 * windows, mailboxes, watches, agents, loops, futures, calls and values are 64-bit numbers. 0 names
 * nothing. The library never gives out a number again: after its end, every use of it is
 * STEPVAN_STALE. With a node that was closed, or whose start has failed, every function returns
 * STEPVAN_CLOSED.
 *
 * TIME is in nanoseconds (int64_t). A limit below 0 means for ever. 0 means: look once.
 * STEPVAN_TIMEOUT changes nothing: the same call, made again, continues to wait. So a caller that
 * must look for signals waits in slices of, say, 50 ms.
 *
 * THREADS. Any thread may call any function at any time, with two exceptions. One thread at a time
 * may be in get_batch of a node; a second gets STEPVAN_BUSY. A call must not give something back
 * (memory, a request) while another call uses it. Waits do the node's work on the caller's thread
 * and hold no lock meanwhile. The library has threads of its own. It installs only the signal
 * handlers that Go needs: for faults, SIGPIPE and preemption (SIGURG). They pass on signals that
 * are not meant for Go.
 *
 * FORK. The library cannot be used in a forked child. There every function returns STEPVAN_FORKED,
 * and touches nothing. A child may execute another program.
 *
 * MEMORY. See stepvan_tensor. No function returns memory of the Go heap.
 *
 * OWNERS. An owner is a number of the caller, not 0, such as the address of the object that keeps
 * tensors alive. A function that gets an owner takes it if the function returns 0. stepvan_released
 * then returns the owner, once, however the operation ends; it comes back in no other way. A
 * function that returns an error has not taken the owner, and the owner does not come back. Only
 * stepvan_register_recv_buffer can return an error and still have taken the owner: when it writes a
 * registration other than 0.
 */
#ifndef STEPVAN_H
#define STEPVAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The version of this interface. It changes when a struct or the meaning of a function does; see
 * stepvan_abi_version.
 */
#define STEPVAN_ABI_VERSION 2

/* What a function returns. */
typedef enum stepvan_code {
	STEPVAN_OK             = 0,
	STEPVAN_TIMEOUT        = 1,  /* the time limit has passed; wait again */
	STEPVAN_CLOSED         = 2,  /* stopped or closed by this program, or all peers have left */
	STEPVAN_PEER_LOST      = 3,  /* a peer died or its connection broke; subject names it */
	STEPVAN_CONFIG         = 4,  /* a setting is missing or wrong; subject names the variable */
	STEPVAN_INVALID        = 5,  /* an argument contradicts the contract; nothing was done */
	STEPVAN_BUSY           = 6,  /* belongs to an unanswered request, or is in use */
	STEPVAN_WOULD_BLOCK    = 7,  /* full: wait for a handle or response and try again */
	STEPVAN_STALE          = 8,  /* the number names nothing any more, or never did */
	/* 9 is reserved */
	STEPVAN_NOT_SUPPORTED  = 10, /* not in this build, van or device */
	STEPVAN_REMOTE         = 11, /* refused by the peer, whose reason is the message */
	STEPVAN_PROTOCOL       = 12, /* a peer sent an invalid message */
	STEPVAN_TOO_SMALL      = 13, /* an array of the caller is too small; the counts are the sizes that are needed */
	STEPVAN_FORKED         = 14, /* in a forked child: see above */
	STEPVAN_INTERNAL       = 15, /* a mistake of the library or the system, which may have ended the node; report the message */
	STEPVAN_EXPIRED        = 16, /* a limit of the settings has passed: STEPVAN_START_TIMEOUT, STEPVAN_STOP_TIMEOUT */
	STEPVAN_REFUSED        = 17, /* this server refused a request, so its batch failed; the next batch is complete */
	STEPVAN_NO_MEMORY      = 18, /* the system or container has no memory left: free some, or ask for less */
} stepvan_code;

/* An error. Texts are UTF-8 and end with 0; the library cuts longer ones. */
typedef struct stepvan_error {
	int32_t code;      /* the result of the function */
	int32_t reserved;  /* 0 */
	char subject[120]; /* the variable of STEPVAN_CONFIG, or the peer concerned ("worker 3"), or "" */
	char message[896]; /* says what is wrong and what to do */
} stepvan_error;

/*
 * Element types, with the numbers that travel. Float4 packs two numbers in an element of one byte.
 */
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
#define STEPVAN_VARIABLE 1u  /* a pull: the answer may have fewer bytes (stepvan_lengths) */
#define STEPVAN_READ_ONLY 2u /* a push, given by the library: a write may end the process */

/*
 * A tensor: contiguous memory with an element type and a shape.
 *
 * As an argument, `memory` names the owner of the memory:
 *
 *   - A number of stepvan_alloc or stepvan_wrap: data must lie in that memory. Operations keep the
 *     memory. stepvan_free returns at once, and the memory ends with the last operation that uses
 *     it. The caller need not keep anything else. Where the number was wrapped without an owner, the
 *     `owner` given with an operation tells when that operation no longer uses the memory.
 *   - 0: memory of the caller. The caller keeps it until the operation is over. The `owner` given
 *     with the operation tells when that is: see stepvan_released.
 *
 * A caller without an owner must find out by itself. A handle that succeeded, or a response that is
 * done, has given everything back. After a handle that failed, its servers may still reach the
 * tensors for some time. The program may give memory that the library gave with a request to the
 * respond of that request. It need not keep such memory.
 *
 * As a result, a tensor belongs to a request, and ends with its respond; memory is 0.
 */
typedef struct stepvan_tensor {
	void *data;
	uint64_t bytes;  /* must fit shape and dtype */
	uint64_t memory; /* see above */
	uint8_t dtype;   /* stepvan_dtype */
	uint8_t rank;    /* dimensions, at most STEPVAN_MAX_RANK; 0 is a scalar: one element */
	uint16_t flags;
	uint16_t device_kind; /* what holds the memory, with the numbers of DLPack: 2 is CUDA; 0 is the host */
	uint16_t device;      /* counts the devices of the kind; 0 for the host */
	int64_t shape[STEPVAN_MAX_RANK]; /* outermost first; those from rank on are ignored */
} stepvan_tensor;

/*
 * A view: memory with an element type, a shape, and a stride for each dimension, so it need not be
 * contiguous. data is the first element. A stride counts elements, as in torch, and is 0 or more. A
 * dimension of stride 0 repeats its elements: such a view can be read and not written to. For the
 * other fields and for owners the rules of stepvan_tensor hold. The view uses the memory from its
 * first to its last element.
 */
typedef struct stepvan_view {
	void *data;
	uint64_t memory;
	uint8_t dtype;   /* stepvan_dtype */
	uint8_t rank;    /* dimensions, at most STEPVAN_MAX_RANK; 0 is a scalar: one element */
	uint16_t flags;  /* 0 */
	uint16_t device_kind;
	uint16_t device;
	int64_t shape[STEPVAN_MAX_RANK];   /* outermost first; those from rank on are ignored */
	int64_t strides[STEPVAN_MAX_RANK];
} stepvan_view;

/* ------------------------------------------------------------------ library */

/*
 * The version of the library, as in "v1.2.3". A build without a version has "(devel)", with the
 * commit where Go knows it. Static memory.
 */
const char *stepvan_version(void);

/*
 * The STEPVAN_ABI_VERSION of the library. A program that loads the library at run time compares it
 * with that of its header before anything else.
 */
uint32_t stepvan_abi_version(void);

/* The name of a code, as in "TIMEOUT"; "?" for an unknown code. Static memory. */
const char *stepvan_code_name(int32_t code);

/*
 * The time in ns since 1970 by the clock of the traces, which never steps back. 0 in a forked
 * child.
 */
int64_t stepvan_get_nanosecond(void);

/*
 * Runs the command line of the program `stepvan` (launch, doctor, bench, env, ...) with the
 * environment of this moment, and returns its exit code. 0 is success, and 2 a command line that
 * cannot be understood. 125 means that nothing ran: in a forked child, with NULL among the
 * arguments, or while another thread is in this function.
 *
 *   - argc, argv: the arguments without the program's name.
 *   - selfc, self: the command that runs this very function with the arguments that follow it, such
 *     as ("python3", "-m", "stepvan"). Commands that start further processes need it. NULL means
 *     the program of this process without arguments.
 *
 * It writes to file descriptors 1 and 2: flush standard output and error before the call. While a
 * command runs it handles SIGINT and SIGTERM.
 */
int32_t stepvan_main(int32_t argc, const char *const *argv, int32_t selfc, const char *const *self);

/* --------------------------------------------------------------------- node */

/*
 * A setting, such as "DMLC_ROLE", "worker". It overrules the environment. A value of NULL counts as
 * not set. docs/settings.md lists all.
 */
typedef struct stepvan_setting {
	const char *name;
	const char *value;
} stepvan_setting;

/*
 * Roles, and groups of a barrier (join them with |). A joint process is worker and server. A peer
 * talks to the other peers.
 */
#define STEPVAN_WORKER 1u
#define STEPVAN_SERVER 2u
#define STEPVAN_JOINT 3u
#define STEPVAN_SCHEDULER 4u
#define STEPVAN_PEER 8u

/*
 * Starts a node with the environment of this moment and `count` settings. The node joins the
 * cluster, gets a rank, connects, and passes the start barrier. The call writes *node at once,
 * before the cluster is complete.
 *
 * STEPVAN_TIMEOUT: the node has not started yet. *node is written, and stepvan_start_wait continues
 * the start; stepvan_close gives it up.
 *
 * After every other error everything is closed again, and *node is 0:
 *
 *   - STEPVAN_CONFIG: subject is the variable to change; the message lists all mistakes.
 *   - STEPVAN_REMOTE: the scheduler refuses this node.
 *   - STEPVAN_PEER_LOST: a node died meanwhile.
 *   - STEPVAN_EXPIRED: the cluster is not complete within STEPVAN_START_TIMEOUT (10 min by
 *     default). The message names the nodes that are missing.
 */
int32_t stepvan_start(const stepvan_setting *settings, uint64_t count, int64_t timeout_ns, uint64_t *node, stepvan_error *error);

/*
 * Waits until a node has started, after stepvan_start returned STEPVAN_TIMEOUT. The errors are the
 * same. After any error other than STEPVAN_TIMEOUT, the number names a closed node. Functions that
 * need a started node return STEPVAN_BUSY until the node has started.
 */
int32_t stepvan_start_wait(uint64_t node, int64_t timeout_ns, stepvan_error *error);

/*
 * Stops the node. The call waits until every living node of the cluster has called stepvan_stop,
 * however long they take, and then leaves. From the call on, operations of a worker return STEPVAN_CLOSED. A server
 * may continue to serve until the call returns, best until get_batch returns STEPVAN_CLOSED.
 *
 *   - STEPVAN_TIMEOUT: others have not stopped yet. The next call continues to wait, and
 *     stepvan_close leaves without them.
 *   - STEPVAN_EXPIRED: STEPVAN_STOP_TIMEOUT has passed. The message names the nodes that had not
 *     stopped.
 *   - STEPVAN_PEER_LOST: the cluster did not live to its end.
 *   - STEPVAN_INTERNAL: a mistake of the library had ended the node.
 *
 * After every result except STEPVAN_TIMEOUT everything is closed, and further calls return the
 * same. The node's number stays valid. Finished handles can still be read. Unanswered requests keep
 * their memory until the program responds to them; that respond returns STEPVAN_CLOSED.
 */
int32_t stepvan_stop(uint64_t node, int64_t timeout_ns, stepvan_error *error);

/*
 * Ends the node's number, and whatever the node still does. It gives up a start. A node whose stop
 * still waits leaves at once, without the others. A node that was never stopped is dead for the
 * others, as if its process had been killed. Waits of other threads end with STEPVAN_CLOSED. The
 * call takes a few seconds at most.
 *
 * After it every function returns STEPVAN_CLOSED for the node, its handles, handlers and responses.
 * For one of its registrations a function returns STEPVAN_CLOSED or, later, STEPVAN_STALE. The
 * program must not use tensors of unanswered requests any more. Memories of stepvan_alloc stay.
 */
int32_t stepvan_close(uint64_t node, stepvan_error *error);

/*
 * Role, ranks and counts of a node. They are constant, except root_port, which a scheduler knows
 * before it has started.
 */
typedef struct stepvan_node_info {
	uint32_t role;       /* STEPVAN_WORKER, _SERVER, _JOINT, _SCHEDULER or _PEER */
	int32_t worker_rank; /* -1 unless it is a worker */
	int32_t server_rank; /* -1 unless it is a server */
	uint32_t servers;    /* S: servers that a broadcast of this worker reaches */
	uint32_t workers;    /* paired with this server */
	uint32_t root_port;  /* of a scheduler: its port; 0 when not known */
} stepvan_node_info;

/* Writes role, ranks and counts of a node. Ranks are -1 and counts 0 before it has started. */
int32_t stepvan_info(uint64_t node, stepvan_node_info *info, stepvan_error *error);

/*
 * Writes the rank of a peer, and the number of peers in the cluster, itself included. A node of
 * another role gets STEPVAN_INVALID.
 */
int32_t stepvan_peer_info(uint64_t node, uint32_t *rank, uint32_t *size, stepvan_error *error);

/*
 * Returns why the cluster has failed (STEPVAN_PEER_LOST, with the node that died). It returns
 * STEPVAN_OK while the cluster works, and after an orderly stop.
 */
int32_t stepvan_health(uint64_t node, stepvan_error *error);

/* A peer: an instance that this node exchanges tensors with. */
typedef struct stepvan_peer {
	uint32_t role;     /* STEPVAN_WORKER, STEPVAN_SERVER or STEPVAN_PEER */
	int32_t rank;      /* of the instance, within its role */
	int32_t node_rank; /* of its node: the group of instances on its machine */
	int32_t instance;  /* index within that group */
	int32_t pid;
	int32_t connected; /* 1 when van and reason are known */
	char host[64];
	char van[16];      /* "shm", "tcp", "unix", "mem" */
	char reason[128];  /* why this van: "same machine" */
} stepvan_peer;

/*
 * Lists the peers, by role and rank. A worker's peers are its servers, and a server's are its
 * workers. Those of a node with the role STEPVAN_PEER are the others with that role. A scheduler's
 * peers are all living nodes. *count is always the number of peers; with
 * STEPVAN_TOO_SMALL the first `capacity` were written. peers may be NULL when capacity is 0.
 */
int32_t stepvan_peers(uint64_t node, stepvan_peer *peers, uint64_t capacity, uint64_t *count, stepvan_error *error);

/*
 * Waits until every member of the groups has called stepvan_barrier with them. The members are all
 * instances or, when per_instance is 0, one instance of every node. groups is one or more of
 * STEPVAN_WORKER, STEPVAN_SERVER and STEPVAN_PEER. Add STEPVAN_SCHEDULER where the scheduler takes
 * part too. This node must be in one of the groups (else STEPVAN_INVALID). After STEPVAN_TIMEOUT the
 * next call with the same groups continues this barrier.
 */
int32_t stepvan_barrier(uint64_t node, uint32_t groups, int32_t per_instance, int64_t timeout_ns, stepvan_error *error);

/* ------------------------------------------------------------------- memory */

/* Flags of stepvan_alloc. */
#define STEPVAN_ZEROED 1u
#define STEPVAN_OWN_FILE 2u /* nothing else lies in the memory's file: a process that may map the file reaches nothing more */

/*
 * Allocates memory that other processes of this machine and user can reach without a copy. They
 * read and write tensors in it where they lie. It is aligned to 64 bytes, and from the size of a
 * page on to a page. It is zeroed only with STEPVAN_ZEROED. It outlives the node. bytes is at least
 * 1. With STEPVAN_OWN_FILE it takes whole pages and a descriptor: use that for few and large pieces.
 */
int32_t stepvan_alloc(uint64_t node, uint64_t bytes, uint32_t flags, void **data, uint64_t *memory, stepvan_error *error);

/*
 * Names memory of the caller, so that operations can keep it: see stepvan_tensor. A device may
 * register memory that is named again and again: see stepvan_registers. The memory must
 * stay valid until stepvan_released returns owner. If owner is 0, it must stay valid until
 * stepvan_free and the last operation on it have ended. The call needs no node.
 */
int32_t stepvan_wrap(void *data, uint64_t bytes, uint64_t owner, uint64_t *memory, stepvan_error *error);

/*
 * Gives up memory of stepvan_alloc, stepvan_wrap or stepvan_keep. The number is stale at once. The
 * program must not use the memory any more. Operations that are under way may still use it; it ends
 * with the last of them. Where a node has registered the memory by itself (stepvan_registers), the
 * call waits until no device has it any more, up to half a second for a GiB.
 */
int32_t stepvan_free(uint64_t memory, stepvan_error *error);

/*
 * Takes owners whose memory the library has finished with, and returns how many it wrote. See
 * OWNERS: it returns each taken owner once. An owner whose memory no operation needed comes back at
 * once; for example, when all tensors name their memory. With no owner to return it costs a few ns.
 * Call it often, from the program's threads: the library never calls the program. 0 in a forked
 * child.
 */
uint64_t stepvan_released(uint64_t *owners, uint64_t capacity);

/* ------------------------------------------------------------- registration */

/*
 * Prepares the memory of a tensor that a worker pushes or pulls, or a server answers with, again
 * and again. That lasts until stepvan_unregister, or until the node ends. A device reaches only
 * memory that is registered with it. To register takes up to half a second for a GiB, and so does
 * the end. Other calls continue meanwhile. Memory that the device cannot reach goes another way. The
 * same memory may be registered several times. If the tensor's memory is 0, the caller must keep it
 * until owner is released.
 *
 *   - STEPVAN_INVALID: an argument contradicts the contract, or the node is a scheduler.
 *   - STEPVAN_CLOSED.
 *   - another code: the system lacks what the message says, such as memory that may be locked.
 */
int32_t stepvan_register(uint64_t node, const stepvan_tensor *tensor, uint64_t owner, uint64_t *registration, stepvan_error *error);

/*
 * Writes 1 to *registers when the node registers memory of stepvan_wrap by itself, else 0. It does
 * so with STEPVAN_REGISTER=auto (the default) where a device reaches only registered memory. The
 * answer is constant once the node has started. A second operation that names such a memory
 * has the node register all of it, on a thread of the library: the operation itself does not wait.
 * STEPVAN_REGISTER_BYTES limits how much memory is registered at once. The memory that was named
 * longest ago makes room. stepvan_free ends it.
 */
int32_t stepvan_registers(uint64_t node, int32_t *registers, stepvan_error *error);

/* ------------------------------------------------------------------- worker */

/* Which servers an exchange concerns. */
typedef enum stepvan_routing {
	STEPVAN_ROUTING_DEFAULT = 0, /* the setting STEPVAN_ROUTING */
	STEPVAN_BROADCAST = 1,       /* all servers; pulls are server-major: server s writes pull s*P+i */
	STEPVAN_BY_KEY = 2,          /* each tensor: the server that owns its key; pulls in plain order */
	STEPVAN_NAMED = 3,           /* each tensor: the server that push_to or pull_to names; pulls in plain order */
} stepvan_routing;

/*
 * One push_pull. Zero it, then fill it in. The library reads it and all its arrays during the call
 * only.
 */
typedef struct stepvan_exchange {
	const stepvan_tensor *push;
	const uint64_t *push_keys; /* one per push */
	const stepvan_tensor *pull; /* may have STEPVAN_VARIABLE */
	const uint64_t *pull_keys; /* one per pull */
	uint64_t pushes;
	uint64_t pulls;
	uint64_t owner; /* of tensors whose memory is 0: see stepvan_released; 0: none */
	uint32_t routing; /* stepvan_routing */
	uint32_t pair_with_push; /* 1: the server that gets push i answers pull i */
	const uint32_t *push_to; /* with STEPVAN_NAMED: ranks of servers, one per push, or one for all */
	const uint32_t *pull_to;
	uint64_t push_to_count; /* 0: the server that owns each key */
	uint64_t pull_to_count;
	const char *label; /* groups exchanges in traces, or NULL. The library keeps each text for ever, 4096 at most */
} stepvan_exchange;

/*
 * Sends every push tensor to its servers, and asks them to write the pull tensors. It never blocks:
 * the handle tells when the exchange has ended. Until then the library uses the tensors (see
 * stepvan_tensor).
 *
 * The pulls of one exchange must not share memory. Nor may a pull share memory with a push, unless
 * the server that gets the push also answers the pull. Otherwise chance would decide the content;
 * STEPVAN_INVALID names the two tensors. So a push may be the pull of its own server, whose answer
 * replaces it. With STEPVAN_BROADCAST and several servers every push goes to all, so no pull may
 * share memory with a push. Pushes may share memory with each other, and tensors of 0 bytes share
 * none. The library does not compare tensors of different exchanges: the caller must keep the ones
 * in flight apart.
 *
 * After an error nothing was sent:
 *
 *   - STEPVAN_INVALID: an argument contradicts the contract.
 *   - STEPVAN_BUSY: a push key still has an unanswered push. Or a server may still use one of the
 *     tensors, after an exchange that failed.
 *   - STEPVAN_WOULD_BLOCK: too much is outstanding. Wait for a handle and try again.
 *   - STEPVAN_PEER_LOST, STEPVAN_CLOSED.
 */
int32_t stepvan_push_pull(uint64_t node, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error);

/*
 * Waits until every server has answered, or until what a handle of a peer names has ended. With
 * pulls, the servers have then received the pushes, and the pulls are written. Without pulls, the
 * servers have then responded. Returns how the exchange ended:
 *
 *   - 0: it succeeded.
 *   - STEPVAN_PEER_LOST or STEPVAN_REMOTE, with the server.
 *   - STEPVAN_TIMEOUT, with a server that has not answered. Call again to wait further.
 *
 * A wait on a finished handle returns at once, as often as wanted. When STEPVAN_HANDLES later
 * handles (65,536 by default) have finished, the handle is STEPVAN_STALE.
 */
int32_t stepvan_wait(uint64_t node, uint64_t handle, int64_t timeout_ns, stepvan_error *error);

/* Writes 1 to *done when stepvan_wait would return at once, else 0. It does not drive progress. */
int32_t stepvan_done(uint64_t node, uint64_t handle, int32_t *done, stepvan_error *error);

/*
 * Writes how many operations an exchange has: its pushes, and the pulls of one server. They end
 * together, and share the handle and the traces.
 */
int32_t stepvan_operations(uint64_t node, uint64_t handle, uint64_t *count, stepvan_error *error);

/*
 * The stamps of an exchange, by index, in ns (stepvan_get_nanosecond). 0 to 3 are of the request:
 * start, post-send, post-recv, process. 4 to 7 are of the response: start, post-send, post-recv,
 * process. Stamps 0, 1, 6 and 7 are by the worker's clock, 2 to 5 by the server's. A stamp is 0
 * where the server has not answered.
 */
#define STEPVAN_STAMPS 8

/*
 * Writes the STEPVAN_STAMPS stamps of a finished exchange. With several servers, these are the
 * stamps of the server that finished last.
 */
int32_t stepvan_trace(uint64_t node, uint64_t handle, int64_t *stamps, stepvan_error *error);

/*
 * Writes the stamps of each server that a finished exchange concerned, STEPVAN_STAMPS numbers each.
 * A broadcast lists its servers by rank, any other exchange in the order in which its tensors name
 * them. The parameter capacity counts servers; *count is always the number of servers.
 */
int32_t stepvan_traces(uint64_t node, uint64_t handle, int64_t *stamps, uint64_t capacity, uint64_t *count, stepvan_error *error);

/*
 * Writes how many bytes of each pull tensor a finished exchange wrote. The exchange must have had a
 * pull with STEPVAN_VARIABLE (else STEPVAN_INVALID). *count is always the number of pulls.
 */
int32_t stepvan_lengths(uint64_t node, uint64_t handle, int64_t *lengths, uint64_t capacity, uint64_t *count, stepvan_error *error);

/* ------------------------------------------------------------------- server */

/*
 * Cuts the tensor's bytes into equal chunks. Chunk i receives in place what worker ranks[i] pushes
 * with keys[i], from the return of this call on. Requests then have views of the chunks. The memory
 * is in use until the registration has ended: see owner and stepvan_unregister. Registering a
 * (rank, key) again replaces its chunk. In memory of an accelerator, no work that is queued to a
 * stream may write to the memory any more.
 *
 * The call waits until the workers know of the registration:
 *
 *   - STEPVAN_TIMEOUT: a worker does not know of it yet, or the registration may still be refused.
 *     stepvan_registration_wait continues the wait.
 *   - STEPVAN_INVALID: bytes that do not divide, wrong alignment, memory of another registration,
 *     or a rank that is not paired.
 *   - STEPVAN_BUSY: a request on a chunk to be replaced is unanswered.
 *   - STEPVAN_CLOSED.
 *
 * The call always writes *registration. With 0 and STEPVAN_TIMEOUT it is the number. With another
 * error it is 0 when there is no registration. It is not 0 when the node ended meanwhile and may
 * still use the memory. That registration ends with the node, and the call has taken owner. So the
 * call has taken owner exactly when *registration is not 0.
 */
int32_t stepvan_register_recv_buffer(uint64_t node, const stepvan_tensor *tensor, uint64_t owner, const uint32_t *ranks, const uint64_t *keys, uint64_t count, int64_t timeout_ns, uint64_t *registration, stepvan_error *error);

/*
 * Waits until the workers know of the registration. After stepvan_unregister, waits until they have
 * stopped using it. The errors are the same as for stepvan_register_recv_buffer. The first error
 * that says that the registration has failed ends it and makes its number stale. stepvan_released
 * then returns its owner.
 */
int32_t stepvan_registration_wait(uint64_t registration, int64_t timeout_ns, stepvan_error *error);

/*
 * Ends a registration of a worker or a server. After a receive buffer, later pushes arrive in
 * pooled memory. On success the memory is the program's again, and the number is stale.
 *
 *   - STEPVAN_BUSY: a request on one of its chunks is unanswered, and nothing has changed.
 *   - STEPVAN_TIMEOUT: the registration has ended, but a worker may still use the memory. Call
 *     again.
 */
int32_t stepvan_unregister(uint64_t registration, int64_t timeout_ns, stepvan_error *error);

/*
 * Policies of stepvan_get_batch: what a batch waits for. A positive number n means: requests of at
 * least n workers.
 */
#define STEPVAN_POLICY_DEFAULT 0 /* the setting STEPVAN_BATCH */
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
 * A batch: arrays of the caller, their capacities, and how many elements of each the library wrote.
 * With STEPVAN_TOO_SMALL the counts are what is needed, and nothing was written. The next call then
 * takes the same batch, whatever its policy.
 */
typedef struct stepvan_batch {
	stepvan_request *requests;
	stepvan_tensor *push;  /* the pushed tensors: the program's until the respond */
	uint64_t *push_keys;   /* one per push, as many as push has room for */
	stepvan_tensor *pull;  /* bytes, dtype, shape and STEPVAN_VARIABLE that the answer must have; data is NULL */
	uint64_t *pull_keys;   /* one per pull */
	uint64_t request_capacity;
	uint64_t push_capacity;
	uint64_t pull_capacity;
	uint64_t requests_count;
	uint64_t push_count;
	uint64_t pull_count;
} stepvan_batch;

/* Flags of stepvan_get_batch. */
#define STEPVAN_VIEWS 1u /* pushes may be the worker's own tensors, as with stepvan_request_in; these have STEPVAN_READ_ONLY */

/*
 * Waits for requests of the paired workers, as the policy says. It takes the oldest waiting request
 * of each worker that has one. Requests are ordered by worker. An idle server is not an error. The
 * program may read and write pushes until the respond. They are in the registered chunk, else in
 * pooled memory. A push that stays in the worker's own memory is copied to pooled memory, unless
 * flags has STEPVAN_VIEWS.
 *
 *   - STEPVAN_TIMEOUT: nothing was taken.
 *   - STEPVAN_REFUSED, in lock-step: this server had to refuse the request of the worker that
 *     subject names. For example, it was larger than its chunk or than the pool. The other workers'
 *     requests of that batch end with STEPVAN_REMOTE. The next call gets the next request of every
 *     worker.
 *   - STEPVAN_CLOSED: every worker has left, and it is time to stop; or this node was stopped.
 *   - STEPVAN_PEER_LOST: the policy cannot be met without a worker that is gone.
 *   - STEPVAN_BUSY: another thread is in get_batch.
 */
int32_t stepvan_get_batch(uint64_t node, int32_t policy, uint32_t flags, int64_t timeout_ns, stepvan_batch *batch, stepvan_error *error);

/*
 * Gives push i of a request, to be read where it is. Where the server can see the worker's own
 * tensor, it is that tensor, without a copy. The program must not write to it. It ends with the
 * respond.
 */
int32_t stepvan_request_in(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error);

/*
 * Gives memory for the answer to pull i. Where the server can reach the worker's own tensor, it is
 * that tensor, and a respond with it sends no bytes. Otherwise it is pooled memory. Its content is
 * undefined at first, and the program may read and write it until the respond. It can answer no
 * other pull. Each call gives the same memory.
 */
int32_t stepvan_request_out(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error);

/*
 * Keeps memory that the library gave with a request: a push, or the result of stepvan_request_in or
 * _out. data is its address. The program may read it until stepvan_free of the number, also after
 * the respond. After the respond, what the program writes to it is lost, or changes the worker's
 * tensor.
 */
int32_t stepvan_keep(uint64_t node, uint64_t handler, const void *data, uint64_t *memory, stepvan_error *error);

/*
 * Answers the pulls of a request, in their order, once. A request without pulls is answered without
 * tensors, which ends the worker's exchange. The call never waits. The library uses the tensors
 * until the response is done: see stepvan_tensor; owner and the response tell when. If the program
 * changes them earlier, a worker gets the changed numbers. STEPVAN_CHECK_BORROWED=1 finds such
 * changes; stepvan_respond_copy avoids them. Tensors of the request itself belong to the library.
 * response may be NULL.
 *
 * After an error nothing was sent. Except after STEPVAN_STALE and STEPVAN_CLOSED, the request still
 * needs an answer:
 *
 *   - STEPVAN_INVALID: count or sizes do not fit the pulls.
 *   - STEPVAN_STALE: the request was answered before.
 *   - STEPVAN_WOULD_BLOCK: the queue to the worker is full.
 *   - STEPVAN_CLOSED: the node was stopped, and the request is gone.
 */
int32_t stepvan_respond(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);

/*
 * Answers several requests with consecutive rows (dimension 0) of one tensor: rows[i] rows answer
 * handlers[i]. With several pulls per request, the pulls' own row counts divide these rows further.
 * Surplus rows are ignored. On an error no request is answered.
 */
int32_t stepvan_respond_vec(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);

/*
 * stepvan_respond and stepvan_respond_vec for programs that use their tensors again at once. When
 * *borrowed is 0, the tensors are the caller's again at the return of the call. The library has
 * written them into the worker's memory, handed them to the kernel, or copied them. When *borrowed
 * is 1, STEPVAN_POOL_BYTES left no room for a copy. The library then uses the tensors until the
 * response is done: wait for it before you change them. The call never waits, and a full queue to
 * the worker is not an error. owner comes back by stepvan_released in either case. Neither response
 * nor borrowed may be NULL.
 */
int32_t stepvan_respond_copy(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error);
int32_t stepvan_respond_vec_copy(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error);

/*
 * Streams of an accelerator. A stream is the number of its handle, such as a cudaStream_t; 0 is the
 * default stream of the device that holds the tensors. The functions without a stream take that.
 *
 * The first three are stepvan_push_pull, stepvan_respond and stepvan_respond_vec for tensors on which
 * a stream works. They read the tensors when the work is over that was queued to the stream before.
 * When the accelerator fails, the handle or the response says so. The workers that wait for such a
 * response get STEPVAN_REMOTE.
 *
 * stepvan_wait_on waits until the pulls are on their way to the accelerator, and has a stream wait for
 * them. Work that is queued to the stream from then on finds them. Wait for the handle, too, before
 * the memory is used in another way. Without pulls of an accelerator it is stepvan_wait.
 *
 * STEPVAN_NOT_SUPPORTED: the build has no driver for the kind of device.
 */
int32_t stepvan_push_pull_on(uint64_t node, uint64_t stream, const stepvan_exchange *exchange, uint64_t *handle, stepvan_error *error);
int32_t stepvan_respond_on(uint64_t node, uint64_t stream, uint64_t handler, const stepvan_tensor *tensors, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);
int32_t stepvan_respond_vec_on(uint64_t node, uint64_t stream, const stepvan_tensor *tensor, const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);
int32_t stepvan_wait_on(uint64_t node, uint64_t handle, uint32_t device_kind, uint32_t device, uint64_t stream, int64_t timeout_ns, stepvan_error *error);

/*
 * Waits until the workers have acknowledged a response: its tensors are the caller's again.
 * STEPVAN_PEER_LOST: a worker was lost before. The number stays valid as long as handles do.
 */
int32_t stepvan_response_wait(uint64_t node, uint64_t response, int64_t timeout_ns, stepvan_error *error);

/* Writes 1 to *done when stepvan_response_wait would return at once, else 0. */
int32_t stepvan_response_done(uint64_t node, uint64_t response, int32_t *done, stepvan_error *error);

/* -------------------------------------------------------------- event loops */

/*
 * A queue tells an event loop which operations have ended. Its file descriptor is readable while
 * there are tokens to take. It is an eventfd of the library: do not close or read it. For asyncio:
 * add_reader(fd), and in it stepvan_queue_take.
 */
int32_t stepvan_queue_open(uint64_t *queue, int32_t *fd, stepvan_error *error);

/* Takes tokens, first those that ended first. It never waits: *count may be 0. */
int32_t stepvan_queue_take(uint64_t queue, uint64_t *tokens, uint64_t capacity, uint64_t *count, stepvan_error *error);

/* Closes a queue and its descriptor. Outstanding notifications are dropped. */
int32_t stepvan_queue_close(uint64_t queue, stepvan_error *error);

/*
 * Puts `token` into the queue, once, when stepvan_wait would return at once, whether the exchange
 * succeeded or not. Meanwhile the background driver makes progress, or a thread that waits on the
 * node.
 */
int32_t stepvan_notify(uint64_t node, uint64_t handle, uint64_t queue, uint64_t token, stepvan_error *error);

/* The same for a response: when stepvan_response_wait would return at once. */
int32_t stepvan_response_notify(uint64_t node, uint64_t response, uint64_t queue, uint64_t token, stepvan_error *error);

/* -------------------------------------------------------------------- peers */

/*
 * What a node with the role STEPVAN_PEER does with the others of that role. docs/peers.md explains it. Handles of
 * these functions are for stepvan_wait, stepvan_done and stepvan_notify, as those of exchanges are.
 *
 * Views are in use until the handle has ended, and the owner tells when nobody reaches them any more: see
 * stepvan_tensor. The death of a peer fails what names it with STEPVAN_PEER_LOST, and nothing else.
 */

/*
 * Begins to send a view to a peer, which may be this node. It never blocks. A send and the receive that names this
 * peer and the same tag are one transfer. Those of two peers with one tag are matched in the order of the calls. Both
 * sides need the same type and number of elements, and their shapes a common division. tag is below 2^63. A transfer
 * of at most 16 KiB ends without its receive.
 *
 *   - STEPVAN_INVALID: the view, the rank or the tag is wrong. From stepvan_wait: the two sides differ.
 *   - STEPVAN_WOULD_BLOCK: too much is outstanding with this peer. Wait for a handle and try again.
 *   - STEPVAN_PEER_LOST, STEPVAN_CLOSED.
 */
int32_t stepvan_send(uint64_t node, const stepvan_view *view, uint32_t to, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error);

/* Begins to receive a view from a peer: see stepvan_send. The view has no two elements in one place. */
int32_t stepvan_recv(uint64_t node, const stepvan_view *view, uint32_t from, uint64_t tag, uint64_t owner, uint64_t *handle, stepvan_error *error);

/*
 * Takes a receive back that no send has met. *cancelled becomes 1, and stepvan_wait returns STEPVAN_CLOSED. It becomes
 * 0 where there is nothing to take back: the transfer has begun or ended.
 */
int32_t stepvan_cancel(uint64_t node, uint64_t handle, int32_t *cancelled, stepvan_error *error);

/*
 * What becomes of the elements of several receives with one view. They are merged in the order of their IDs, and in
 * that of their peers where those are equal. The first replace what the view had.
 */
typedef enum stepvan_merge {
	STEPVAN_OVERWRITE = 0, /* a receive has its view for itself */
	STEPVAN_SUM = 1,
	STEPVAN_AVG = 2,       /* the sum, divided by the number of receives */
	STEPVAN_MAX = 3,
	STEPVAN_MIN = 4,
	STEPVAN_PRODUCT = 5,
} stepvan_merge;

/* A move of a plan: the elements of a view go to a peer, or come from one. Zero it, then fill it in. */
typedef struct stepvan_move {
	stepvan_view view;
	uint64_t id;       /* the same at both ends; no two moves to a peer have the same, nor two from it */
	uint32_t peer;     /* rank */
	uint8_t wire;      /* stepvan_dtype of the elements on their way, the same at both ends; 0: both have one type */
	uint8_t merge;     /* stepvan_merge, of receives */
	uint16_t reserved; /* 0 */
	const char *label; /* names the move in errors, such as a parameter, or NULL */
} stepvan_move;

/* What a run of a plan moves, in bytes apart from the first two. */
typedef struct stepvan_plan_stats {
	uint64_t moves;
	uint64_t pairs;    /* of this peer and another, in one direction */
	uint64_t sent;     /* to other peers */
	uint64_t received; /* from other peers */
	uint64_t viewed;   /* the receiver copies them out of the sender's memory */
	uint64_t written;  /* the sender copies them to the receiver's memory */
	uint64_t streamed; /* they travel in messages */
	uint64_t local;    /* they stay in this process */
	uint64_t merged;   /* how many receives are merged */
	uint64_t passed;   /* of sent: they come from a peer, and this one passes them on; see STEPVAN_PLAN_REPLICAS */
	uint64_t reserved[6]; /* 0 */
} stepvan_plan_stats;

/*
 * Begins to agree on a plan with all peers that its moves name. Each of them calls it with the same name. The call
 * does not wait. The number of the plan is also the handle of the agreement: wait for it with stepvan_wait. The library
 * reads the arrays and texts during the call only. It uses the views until stepvan_plan_close has returned 0, or the
 * agreement has failed; owner is for all of them.
 *
 * stepvan_wait with the plan returns, beside what it returns for any handle:
 *
 *   - STEPVAN_INVALID: the moves do not fit each other. The message names the first, with what both sides have.
 *   - STEPVAN_EXPIRED: timeout_ns has passed, and the peer that subject names did not take part.
 *   - STEPVAN_BUSY: this node has a plan of that name.
 *   - STEPVAN_REMOTE: a peer gave the plan up; the message has its reason.
 *
 * A plan that has failed needs stepvan_plan_close, too.
 */
int32_t stepvan_plan(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const stepvan_move *recvs, uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error);

/*
 * Flag of stepvan_plan_with and stepvan_match_with: the receivers of the same elements pass them on to each other, so
 * that each network link carries one copy. Sends are replicas when they have one view and go to different peers whose
 * memory the sender does not share. They have on their way the type that their receivers have. All else travels as
 * without the flag. The handle of a receiver that passes elements on ends when it has passed on all of them.
 */
#define STEPVAN_PLAN_REPLICAS 1u

/* stepvan_plan with flags, the same at all peers. If they differ, STEPVAN_INVALID from stepvan_wait names both. */
int32_t stepvan_plan_with(uint64_t node, const char *name, const stepvan_move *sends, uint64_t send_count, const stepvan_move *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error);

/*
 * Begins a run of a plan. All its peers begin it. version is not 0 and never lower than before. Only a peer without
 * sends may give 0: it takes the version that is offered. Nobody writes to the views of the sends from the call until
 * the handle has ended, and nobody uses those of the receives.
 *
 *   - STEPVAN_INVALID: the version is lower than the last, or 0 at a peer that sends.
 *   - STEPVAN_BUSY: the peers have not agreed on the plan yet, or a run has not ended.
 *   - STEPVAN_PEER_LOST, STEPVAN_REMOTE, STEPVAN_CLOSED: the plan is over, and can only be closed.
 */
int32_t stepvan_plan_begin(uint64_t plan, uint64_t version, uint64_t *handle, stepvan_error *error);

/*
 * Writes the state of a plan. Each of the three may be NULL.
 *
 * The first is the version that all peers with sends to this one have begun, or 0 while one has not. The second is the
 * version of the last run. It is 0 while that run is not whole here.
 */
int32_t stepvan_plan_state(uint64_t plan, uint64_t *offered, uint64_t *version, stepvan_plan_stats *stats, stepvan_error *error);

/*
 * Ends a plan at this peer, and at the others when they begin another run. A run that has not ended fails. The call
 * waits until no peer uses the memory of the plan; the number is then stale. A peer that is stopped may use it until it
 * continues, or its process ends. STEPVAN_TIMEOUT: call again.
 */
int32_t stepvan_plan_close(uint64_t plan, int64_t timeout_ns, stepvan_error *error);

/*
 * Makes a group of some peers, which do the same things together, in the same order. All of them call it with the same
 * name and the same ranks in the same order, and this peer is one of them. Nothing is sent. After an operation that has
 * failed, the group can only be closed, at all its members.
 *
 * A peer remembers the name of a group with its ranks, also after stepvan_group_close. It has at most 65,536 of them,
 * and a further one is STEPVAN_INVALID. Use names again, or end groups by stepvan_group_forget.
 */
int32_t stepvan_group(uint64_t node, const char *name, const uint32_t *ranks, uint64_t count, uint64_t *group, stepvan_error *error);

/*
 * Begins a barrier: the handle ends when all members have begun it. A group has one operation at a time; during
 * another it is STEPVAN_BUSY. A handle of a group stays valid until four later operations of the group have begun, or
 * the group is closed.
 */
int32_t stepvan_group_barrier(uint64_t group, uint64_t *handle, stepvan_error *error);

/*
 * Begins an all-gather: each member gets the bytes of all. They may have any size, and another at each member. The
 * library copies them. stepvan_gathered gives the result.
 */
int32_t stepvan_group_all_gather(uint64_t group, const void *data, uint64_t bytes, uint64_t *handle, stepvan_error *error);

/*
 * Writes the bytes that a member has given to an all-gather that has ended. member is its index among the ranks of the
 * group. *bytes is always their number. STEPVAN_TOO_SMALL: capacity is less, and nothing was written. data may be NULL
 * when capacity is 0.
 */
int32_t stepvan_gathered(uint64_t node, uint64_t handle, uint64_t member, void *data, uint64_t capacity, uint64_t *bytes, stepvan_error *error);

/*
 * Begins a broadcast: the elements of the view at member root go to the views of all others. root is an index among
 * the ranks of the group. The views have one type and one number of elements, and their shapes a common division. They
 * are in use until the handle has ended. owner is for the view.
 *
 * STEPVAN_INVALID from stepvan_wait, at all members: the views or the roots differ. The message says how.
 */
int32_t stepvan_group_broadcast(uint64_t group, const stepvan_view *view, uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error);

/*
 * Begins a reduction: the elements of the views of all members are merged into another view of member root. It shares
 * no element with the first. The other members may give NULL. merge is a stepvan_merge, and not STEPVAN_OVERWRITE. The
 * elements are merged in the order of the members, so the bits are the same each time. owner is for both views. The
 * rest is as for stepvan_group_broadcast.
 */
int32_t stepvan_group_reduce(uint64_t group, const stepvan_view *view, const stepvan_view *into, uint32_t merge, uint32_t root, uint64_t owner, uint64_t *handle, stepvan_error *error);

/*
 * Ends a group at this peer. An operation that has not ended fails, here and at the other members. Handles of the group
 * are stale.
 */
int32_t stepvan_group_close(uint64_t group, stepvan_error *error);

/*
 * Ends a group as stepvan_group_close does, and this peer no longer remembers its name with these ranks. It is for
 * names that no member uses again, such as those that are drawn by chance.
 */
int32_t stepvan_group_forget(uint64_t group, stepvan_error *error);

/*
 * Parts: what a peer has of a tensor. The library has their bytes from malloc, and the caller frees them with free().
 * Peers may exchange them. The calls need no node. shape has the rank dimensions of the whole tensor.
 */

/* Bytes of the caller, or of the library, which has them from malloc. */
typedef struct stepvan_bytes {
	const void *data;
	uint64_t bytes;
} stepvan_bytes;

/* [start, stop) of a dimension of the whole tensor, which lies at local in the part. */
typedef struct stepvan_span {
	int64_t start;
	int64_t stop;
	int64_t local;
} stepvan_span;

/* Writes the part with some spans of each dimension: counts[i] of dimension i, in their order, one after another. */
int32_t stepvan_part_of_spans(const int64_t *shape, uint32_t rank, const stepvan_span *spans, const uint32_t *counts, stepvan_bytes *part, stepvan_error *error);

/* Kinds of placements. */
#define STEPVAN_REPLICATE 0u
#define STEPVAN_SHARD 1u
#define STEPVAN_STRIDED_SHARD 2u

/* What a dimension of a mesh does to a tensor, as in torch.distributed.tensor. */
typedef struct stepvan_placement {
	uint32_t kind;
	uint32_t dim;    /* of the tensor */
	uint32_t factor; /* of STEPVAN_STRIDED_SHARD: split_factor */
} stepvan_placement;

/*
 * Writes the part of a tensor that an index of a mesh has. The mesh has the sizes of dims dimensions, and a placement
 * for each. The last dimension counts fastest in the index. Shards are as torch makes them.
 */
int32_t stepvan_part_of_mesh(const int64_t *shape, uint32_t rank, const uint32_t *mesh, const stepvan_placement *placements, uint32_t dims, uint64_t index, stepvan_bytes *part, stepvan_error *error);

/* The attributes that Megatron gives a parameter. */
typedef struct stepvan_partition {
	uint32_t dim;          /* partition_dim */
	uint32_t stride;       /* partition_stride; 0 counts as 1 */
	uint32_t world;        /* ranks of the tensor parallel group; 0 counts as 1 */
	uint32_t expert_dim;   /* the dimension that counts experts */
	uint32_t expert_world; /* ranks that divide the experts; 0 counts as 1 */
	uint32_t size_count;
	const int64_t *sizes;  /* partition_sizes */
} stepvan_partition;

/* Writes the part of a rank: number is expert rank * world + tensor parallel rank. */
int32_t stepvan_part_of_partition(const int64_t *shape, uint32_t rank, const stepvan_partition *partition, uint64_t number, stepvan_bytes *part, stepvan_error *error);

/* Writes the shapes of the whole tensor and of the part, of STEPVAN_MAX_RANK numbers each, and their rank. */
int32_t stepvan_part_shape(const stepvan_bytes *part, int64_t *shape, int64_t *local, uint32_t *rank, stepvan_error *error);

/* A tensor with a name, or the part of it that a peer has. Zero it, then fill it in. */
typedef struct stepvan_named {
	stepvan_view view;  /* of the shape of the part */
	const char *name;
	stepvan_bytes part; /* 0 bytes: all of the tensor */
} stepvan_named;

/*
 * Makes a plan that moves tensors to the tensors of their names, whatever part each member of a group has. All members
 * call it with the same name. Each gives the tensors that it sends, and those that it receives.
 * Both lists may be empty. The group does nothing else meanwhile. The rest is as for stepvan_plan. After a failure
 * the group can only be closed.
 *
 * STEPVAN_INVALID from stepvan_wait: a tensor is received and not sent as a whole, or its type or shape differs between
 * members. The message names it. At other members it is STEPVAN_REMOTE.
 */
int32_t stepvan_match(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count, const stepvan_named *recvs, uint64_t recv_count, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error);

/* stepvan_match with flags, as stepvan_plan_with has them. */
int32_t stepvan_match_with(uint64_t group, const char *name, const stepvan_named *sends, uint64_t send_count, const stepvan_named *recvs, uint64_t recv_count, uint32_t flags, uint64_t owner, int64_t timeout_ns, uint64_t *plan, stepvan_error *error);

/*
 * Sends a small message to a peer, which may be this one. Those to one peer arrive in order. A message waits at the
 * peer until somebody listens to its topic, which has at most 128 bytes. The body has at most 64 KiB.
 * STEPVAN_WOULD_BLOCK: the peer has not received 4,096 earlier ones, or has 64 MiB of unread ones.
 */
int32_t stepvan_mail(uint64_t node, uint32_t to, const char *topic, const void *body, uint64_t bytes, stepvan_error *error);

/* Opens a mailbox for the messages on a topic, also for those that wait. A topic has one mailbox at a time. */
int32_t stepvan_listen(uint64_t node, const char *topic, uint64_t *mailbox, stepvan_error *error);

/*
 * Takes the next message of a mailbox: the rank of its sender, and its body. *bytes is its length.
 *
 *   - STEPVAN_TIMEOUT: none has come.
 *   - STEPVAN_TOO_SMALL: capacity is less than *bytes, and the message stays. data may be NULL when capacity is 0.
 *   - STEPVAN_WOULD_BLOCK: more than 4,096 notes of a window, or 16 MiB of them, waited, and some are lost. The
 *     message says how many.
 *   - STEPVAN_CLOSED, STEPVAN_PEER_LOST: the node can work no more.
 */
int32_t stepvan_mailbox_next(uint64_t mailbox, int64_t timeout_ns, uint32_t *from, void *data, uint64_t capacity, uint64_t *bytes, stepvan_error *error);

/* Puts `token` into the queue, once, when stepvan_mailbox_next would return at once. */
int32_t stepvan_mailbox_notify(uint64_t mailbox, uint64_t queue, uint64_t token, stepvan_error *error);

/* Closes a mailbox. Messages in it are lost, and later ones wait for the next mailbox. */
int32_t stepvan_mailbox_close(uint64_t mailbox, stepvan_error *error);

/* Bytes of the token of a window. */
#define STEPVAN_TOKEN_BYTES 32

/* Flags of stepvan_expose. */
#define STEPVAN_WRITE 1u /* peers may also write */

/*
 * Lets other peers read a view by themselves, with stepvan_get: count ranks in peers, or all peers when count is 0. A
 * peer with the token, of STEPVAN_TOKEN_BYTES, reaches the view until stepvan_unexpose. It cannot be guessed. notes may
 * be NULL. Else it becomes a mailbox, which gets the note of each stepvan_put, after its elements.
 */
int32_t stepvan_expose(uint64_t node, const stepvan_view *view, uint32_t flags, const uint32_t *peers, uint64_t count, uint64_t owner, uint64_t *window, uint8_t *token, uint64_t *notes, stepvan_error *error);

/*
 * Ends a window. Operations that name it fail from here on. The call waits until no peer reaches the memory; the number
 * is then stale. STEPVAN_TIMEOUT: call again.
 */
int32_t stepvan_unexpose(uint64_t window, int64_t timeout_ns, stepvan_error *error);

/*
 * Begins to copy a part of a window to a view. The part has the shape of the view. at has its first element, one number
 * for each dimension of the view; NULL stands for the first element of the window. The program of the other peer takes
 * no part.
 *
 *   - STEPVAN_INVALID: the token is not that of a window, or the part, its type or its rights do not fit the window.
 *   - STEPVAN_STALE, STEPVAN_REMOTE: the window was closed.
 *   - STEPVAN_REMOTE: the window does not admit this peer.
 *   - STEPVAN_WOULD_BLOCK, STEPVAN_PEER_LOST, STEPVAN_CLOSED.
 */
int32_t stepvan_get(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, uint64_t owner, uint64_t *handle, stepvan_error *error);

/*
 * Begins to copy a view to a part of a window: see stepvan_get. The handle ends when the elements are there. The other
 * peer gets the note then, of at most 64 KiB, unless it is NULL.
 */
int32_t stepvan_put(uint64_t node, const stepvan_view *view, const uint8_t *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error);

/*
 * stepvan_put of rows of a matrix, which are picked on their way: row i of the part is row rows[i] of the view. Each
 * row of the view must be contiguous. The numbers are not read after the call. Where this process sees the window, the
 * rows are copied once, in part by the calling thread. STEPVAN_INVALID also: a number is not that of a row.
 */
int32_t stepvan_put_rows(uint64_t node, const stepvan_view *view, const int64_t *rows, uint64_t count, const uint8_t *token, const int64_t *at, const void *note, uint64_t note_bytes, uint64_t owner, uint64_t *handle, stepvan_error *error);

/* -------------------------------------------------------------------- board */

/*
 * The board of a cluster has small entries, which any node posts and all see. So programs that were started apart find
 * each other. An entry lives until its node removes it, leaves or dies.
 */

/* The most bytes of the value of an entry. */
#define STEPVAN_MAX_VALUE 4096

typedef struct stepvan_entry {
	uint64_t order; /* numbers the entries in the order in which they were made */
	uint64_t bytes; /* of value */
	char key[264];  /* ends with 0 */
	char owner[64]; /* the node that posted it: "peer 3" */
	uint8_t value[STEPVAN_MAX_VALUE];
} stepvan_entry;

/*
 * Begins to put an entry on the board, or to replace the value of an entry of this node. The key is printable text of
 * at most 256 bytes. A node may have 1,024 entries with 1 MiB. stepvan_wait, for nodes of any role, returns:
 *
 *   - STEPVAN_INVALID: the key is not printable text, or key or value are too long.
 *   - STEPVAN_REMOTE: the key belongs to the node that subject names, or there are too many entries.
 *   - STEPVAN_PEER_LOST, STEPVAN_CLOSED.
 *
 * A handle of the board stays valid until 256 later ones of its node have begun.
 */
int32_t stepvan_post(uint64_t node, const char *key, const void *value, uint64_t bytes, uint64_t *handle, stepvan_error *error);

/* Begins to take an entry of this node off the board. STEPVAN_REMOTE: there is no such entry of this node. */
int32_t stepvan_unpost(uint64_t node, const char *key, uint64_t *handle, stepvan_error *error);

/* Begins to watch the entries whose keys begin with a prefix. A node may have 64 watches at a time. */
int32_t stepvan_watch(uint64_t node, const char *prefix, uint64_t *watch, stepvan_error *error);

/*
 * Waits until there is a list of entries that this watch has not shown: the first, or one after a change. *count is how
 * many there are. The list is the board as it was at one moment. One thread at a time uses a watch.
 */
int32_t stepvan_watch_next(uint64_t watch, int64_t timeout_ns, uint64_t *count, stepvan_error *error);

/* Writes entry i of the list. */
int32_t stepvan_watch_entry(uint64_t watch, uint64_t i, stepvan_entry *entry, stepvan_error *error);

/* Ends a watch. */
int32_t stepvan_watch_close(uint64_t watch, stepvan_error *error);

/* --------------------------------------------------------------- tensor bus */

/*
 * Starts an agent of the tensor bus at a peer, which has one agent at most. Clients reach it by a Unix socket at a
 * path, also from other processes of this user. Nobody else can enter its folder. docs/tensor-bus.md of the repository
 * says what clients do. queue is how many commands of a client may wait. 0 stands for 50,000.
 *
 *   STEPVAN_INVALID: the peer has an agent already, or the path cannot be used.
 */
int32_t stepvan_agent(uint64_t node, const char *path, uint64_t queue, uint64_t *agent, stepvan_error *error);

/*
 * Ends an agent, before its node is stopped. Its clients get an error, and so do the agents of their partners. The call
 * waits until nobody uses the memory of the clients, and the number is stale in any case. STEPVAN_TIMEOUT: others still
 * use the memory; stop the node.
 */
int32_t stepvan_agent_close(uint64_t agent, int64_t timeout_ns, stepvan_error *error);

/* ---------------------------------------------------------------- particles */

/*
 * Particles are modules that send each other messages. docs/particles.md explains them. Each peer has a loop, with one
 * or more devices. A particle has a number, counted from 0, and lives at a device of a loop. The driver, one of the
 * peers, gives the numbers.
 *
 * A call is a message to a particle, or a question for a view of it. A thread of the program takes it with
 * stepvan_particle_next, runs the hook for it, and ends it with stepvan_particle_done. In between it has the turn of
 * the device: at most one call of a device runs at a time. The result reaches the future of the caller.
 *
 * A hook that waits gives its turn back meanwhile. So the program needs a further thread in stepvan_particle_next of
 * that device. Before a hook waits, let the program start one unless another of its threads is there. When the wait is
 * over, the hook takes the turn again.
 *
 * A call carries the number of its chain. Calls that a hook sends are of the chain of the hook. The turn goes to:
 * first, calls whose chain has a hook at this device that has not ended; then hooks whose wait is over; then other
 * calls. Each of these is in the order of arrival. Calls of one peer never pass each other, except by this rule.
 *
 * Loops, futures, calls and values are numbers, as nodes are (see NUMBERS).
 */

/* Flags of stepvan_particle_options. */
#define STEPVAN_PARTICLE_ALLOW_PICKLED 1u

/* Zero in a field stands for the default. */
typedef struct stepvan_particle_options {
	uint32_t devices;      /* how many this loop has; 1 */
	uint32_t flags;
	uint32_t driver;       /* the rank of the peer that creates particles; the same at all loops */
	uint32_t reserved;     /* 0 */
	const uint32_t *ranks; /* the peers with loops, the same list at all; NULL: all peers of the cluster */
	uint64_t count;        /* of ranks */
	const void *key;       /* a secret of all loops, for pickled values between machines; 16 bytes or more, or NULL */
	uint64_t key_bytes;
	uint64_t value_bytes;  /* the most bytes of one value, with its tensors; 4 GiB */
	uint64_t outstanding;  /* how many calls of this loop may be without their result; 65,536 */
} stepvan_particle_options;

/*
 * Opens the loop of a peer, which has one at a time. It does not wait for the other loops, and calls may be sent at
 * once. options may be NULL. Close the loop before the node stops.
 *
 * STEPVAN_INVALID: this peer has a loop, or is not among the ranks, or the driver is not.
 */
int32_t stepvan_particle_open(uint64_t node, const stepvan_particle_options *options, uint64_t *loop, stepvan_error *error);

/*
 * Ends a loop, also for the others: futures that need it fail there with STEPVAN_PEER_LOST. Those of this loop that are
 * not done fail with STEPVAN_CLOSED. Threads in stepvan_particle_next, and hooks that wait, return with STEPVAN_CLOSED.
 * The call waits until the program has ended all its calls with stepvan_particle_done, and nobody reaches its memory.
 * Then the numbers of the loop and of its futures are stale. Values stay until they are released. STEPVAN_TIMEOUT: the
 * message names a hook that has not ended. Call again.
 */
int32_t stepvan_particle_close(uint64_t loop, int64_t timeout_ns, stepvan_error *error);

/*
 * At the driver: begins to create a particle at a device of the loop of a peer. *particle is its number, from 0 on. The
 * future is done when all loops know of it, and have acknowledged. Its result has no value. Wait for it before anybody
 * sends to the particle. Its module is the program's matter: send it a call such as ".create".
 *
 *   - STEPVAN_INVALID: this is not the driver, or there is no such loop. From stepvan_particle_wait: no such device.
 *   - STEPVAN_CLOSED, STEPVAN_PEER_LOST: from stepvan_particle_result, when a loop ends before it has acknowledged.
 */
int32_t stepvan_particle_create(uint64_t loop, uint32_t rank, uint32_t device, uint64_t *particle, uint64_t *future, stepvan_error *error);

/* Where a particle lives. */
typedef struct stepvan_particle_place {
	uint64_t particle;
	uint32_t rank;
	uint32_t device;
} stepvan_particle_place;

/* Lists the particles that this loop knows of, by their numbers. *count is always how many there are. */
int32_t stepvan_particle_list(uint64_t loop, stepvan_particle_place *places, uint64_t capacity, uint64_t *count, stepvan_error *error);

/*
 * Says that a particle of this loop takes a message. Others get STEPVAN_INVALID at their callers. The name has 1 to 128
 * bytes. Names that begin with a dot are for the program's own operations, and need no registration.
 */
int32_t stepvan_particle_hook(uint64_t loop, uint64_t particle, const char *name, stepvan_error *error);

/* Flags of stepvan_particle_value. */
#define STEPVAN_PARTICLE_PICKLED 1u /* the bytes are for a decoder that runs code */
#define STEPVAN_PARTICLE_LENT 2u    /* an argument: the tensors are not copied: see below */
#define STEPVAN_PARTICLE_VIEW 4u    /* a result: the tensors belong to a particle, and must only be read */

/*
 * What a call or its result carries: bytes that the library does not read, and tensors in memory of the host beside
 * them, at most 1,024.
 *
 * As an argument: the library copies the bytes and the tensors before the function returns. With STEPVAN_PARTICLE_LENT
 * it uses the tensors where they are, and nobody writes to them until the owner comes back (see OWNERS). Pickled bytes
 * travel only between loops that both allow them (STEPVAN_PARTICLE_ALLOW_PICKLED), within one machine and user, or
 * where both have the same key. Other loops refuse such a value before anybody reads it.
 *
 * As a result: data, and tensors with contiguous or other strides, in memory of the library. They stay until
 * stepvan_particle_release of number. The program may write to tensors that have no STEPVAN_PARTICLE_VIEW. Their fields
 * `memory` are 0.
 */
typedef struct stepvan_particle_value {
	const void *data;
	uint64_t bytes;
	const stepvan_view *tensors;
	uint64_t count;  /* of tensors */
	uint64_t number; /* of a result, for stepvan_particle_release; 0: nothing to release. 0 as an argument */
	uint32_t flags;
	uint32_t reserved; /* 0 */
} stepvan_particle_value;

/* Gives back a value, of a call or of a result. The program uses neither its bytes nor its tensors any more. */
int32_t stepvan_particle_release(uint64_t value, stepvan_error *error);

/*
 * Begins a call: sends a message to a particle. It never blocks.
 *
 *   - call: the call whose hook sends it; 0 outside of hooks, which begins a chain.
 *   - from: the particle that sends it; -1 for none. It is for the hook to see.
 *   - value: the arguments; NULL for none. owner: for its tensors with STEPVAN_PARTICLE_LENT, or 0.
 *   - future: for the result. End it with stepvan_particle_forget.
 *
 *   STEPVAN_INVALID: there is no such particle, the value cannot be sent, or hooks are nested more than 200 deep.
 *   STEPVAN_NOT_SUPPORTED: the value is pickled, and this loop does not allow it. If the loop of the particle does not,
 *   or is neither on this machine nor has the key, stepvan_particle_result says so.
 *   STEPVAN_WOULD_BLOCK: options.outstanding calls have no result yet. Wait for a future.
 *   STEPVAN_PEER_LOST, STEPVAN_CLOSED: the loop of the particle has ended.
 */
int32_t stepvan_particle_send(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, const char *name, const stepvan_particle_value *value, uint64_t owner, uint64_t *future, stepvan_error *error);

/*
 * Begins to get a view of a particle: what its loop has given to stepvan_particle_share, as it is at one moment between
 * two calls of its device. For the rest it is as stepvan_particle_send. The result has STEPVAN_PARTICLE_VIEW. On one
 * machine its tensors are the memory of the particle, and elsewhere a copy. As long as the value is not released, the
 * loop of the particle copies before it writes.
 */
int32_t stepvan_particle_get(uint64_t loop, uint64_t call, int64_t from, uint64_t particle, uint64_t *future, stepvan_error *error);

/*
 * Waits until all the futures are done, whether they have succeeded or failed. A future may be waited for any number of
 * times, by any thread. call is the call whose hook waits, and 0 outside of hooks. With a call, another call of the
 * device may run meanwhile, and the function returns with the turn, unless it returns STEPVAN_CLOSED. So it may return
 * later than the limit. One thread at a time waits for a call.
 *
 *   - STEPVAN_TIMEOUT: some are not done.
 *   - STEPVAN_INVALID: the hook would wait for the result of its own call, or of one that waits for its result.
 *   - STEPVAN_STALE: a future was forgotten, or never was.
 *   - STEPVAN_CLOSED: the loop was closed, with a call. Without one the futures are done, and say so.
 */
int32_t stepvan_particle_wait(uint64_t loop, uint64_t call, const uint64_t *futures, uint64_t count, int64_t timeout_ns, stepvan_error *error);

/* Writes 1 if a future is done, and 0 otherwise. */
int32_t stepvan_particle_is_done(uint64_t loop, uint64_t future, int32_t *done, stepvan_error *error);

/* Puts `token` into the queue, once, when the future is done. */
int32_t stepvan_particle_notify(uint64_t loop, uint64_t future, uint64_t queue, uint64_t token, stepvan_error *error);

/*
 * The result of a future that is done (STEPVAN_BUSY: it is not). Each call of this function gives a value of its own to
 * release. All of them are the same memory.
 *
 *   - STEPVAN_REMOTE: the hook has failed. stepvan_particle_failure has the text.
 *   - STEPVAN_INVALID: the particle has no hook for the message, or there is no view of it.
 *   - STEPVAN_NOT_SUPPORTED: the loop of the particle has refused a pickled value.
 *   - STEPVAN_PEER_LOST, STEPVAN_CLOSED: a loop has ended; subject names the peer.
 *   - STEPVAN_NO_MEMORY, STEPVAN_WOULD_BLOCK: the loop of the particle had no room for the arguments.
 */
int32_t stepvan_particle_result(uint64_t loop, uint64_t future, stepvan_particle_value *value, stepvan_error *error);

/*
 * Writes the whole text of the error of a future that has failed. For STEPVAN_REMOTE that is the text of the hook, and
 * nothing more. *bytes is always its length, and 0 without an error. STEPVAN_TOO_SMALL: capacity is less, and nothing
 * was written. STEPVAN_BUSY: the future is not done.
 */
int32_t stepvan_particle_failure(uint64_t loop, uint64_t future, char *text, uint64_t capacity, uint64_t *bytes, stepvan_error *error);

/* Ends the number of a future. The call that it is for continues, and its result is dropped. */
int32_t stepvan_particle_forget(uint64_t loop, uint64_t future, stepvan_error *error);

/* What a thread has to run. */
#define STEPVAN_PARTICLE_MESSAGE 0u /* the hook for name */
#define STEPVAN_PARTICLE_SHARE 1u   /* somebody wants a view, and nothing is shared: call stepvan_particle_share, then done */

typedef struct stepvan_particle_call {
	uint64_t call;     /* its number, until stepvan_particle_done */
	uint64_t particle; /* which is to run it */
	int64_t from;      /* the particle that has sent it, or -1 */
	uint64_t chain;
	uint32_t kind;     /* STEPVAN_PARTICLE_MESSAGE or _SHARE */
	uint32_t idle;     /* how many threads of this device are in stepvan_particle_next */
	char name[136];    /* of the message, ends with 0 */
	stepvan_particle_value value; /* the arguments: release it */
} stepvan_particle_call;

/*
 * Waits for a call to a device of this loop, and takes its turn. Any number of threads may be in this function.
 *
 *   STEPVAN_TIMEOUT: none has come. STEPVAN_CLOSED: the loop was closed.
 */
int32_t stepvan_particle_next(uint64_t loop, uint32_t device, int64_t timeout_ns, stepvan_particle_call *call, stepvan_error *error);

/*
 * Ends a call, and gives its turn back. Any thread may do it, once. With failure, a text such as a traceback, the hook
 * has failed, and value is not read. Otherwise value is the result, or NULL for an empty one. owner is for its tensors
 * with STEPVAN_PARTICLE_LENT, or 0.
 *
 * If the result cannot be sent, the function says why, and the caller gets that as the error of its future. The call
 * has ended in any case. STEPVAN_STALE: there is no such call. A wait of the hook on another thread ends, without the
 * turn, with STEPVAN_STALE.
 */
int32_t stepvan_particle_done(uint64_t loop, uint64_t call, const stepvan_particle_value *value, const char *failure, uint64_t owner, stepvan_error *error);

/*
 * Gives the memory of which others get views: parameters and gradients of a particle of this loop. Bytes of the value
 * describe it to them. It replaces what was given before. Call it while the thread has the turn of the particle's
 * device, or before the particle has got a call. NULL ends it: the next question for a view comes as a call of kind
 * STEPVAN_PARTICLE_SHARE.
 *
 * The tensors are not copied. Their owner comes back when other memory was given in their place, and no view of them is
 * out. Other processes map tensors in memory of stepvan_alloc, and get copies of others. Few large tensors are faster
 * than many small ones.
 */
int32_t stepvan_particle_share(uint64_t loop, uint64_t particle, const stepvan_particle_value *value, uint64_t owner, stepvan_error *error);

/*
 * Writes how many views of the memory of the last stepvan_particle_share are out. Ask before each write to it, with the
 * turn. 0: write. More: leave that memory as it is. Copy it to other memory, write there, and share that. No view goes
 * out while a thread has the turn.
 */
int32_t stepvan_particle_views(uint64_t loop, uint64_t particle, uint64_t *views, stepvan_error *error);

/* --------------------------------------------------------------- resharding */

/* Flags of stepvan_reshard_plan. */
#define STEPVAN_RESHARD_CAST 1u /* every parameter may have another type at its destination */

/*
 * Plans how the weights of a model move from one parallel layout to another. The call needs no node.
 *
 * rosters has one roster of each rank, in any order. world is how many ranks there are (0: not known).
 * A rank sends and receives at most batch_bytes in one batch (0: all is one batch). plans[i] becomes
 * the plan of ranks[i]. The caller frees it with free().
 *
 * The package reshard of the repository documents the bytes: those of rosters in readroster.go and
 * roster.go, and those of plans in file.go.
 *
 *   STEPVAN_INVALID: the sides do not fit together. The message names the parameter.
 *   STEPVAN_PROTOCOL: a roster is damaged.
 */
int32_t stepvan_reshard_plan(const stepvan_bytes *rosters, uint64_t count, uint32_t world, uint64_t batch_bytes, uint32_t flags, const uint32_t *ranks, uint64_t plan_count, stepvan_bytes *plans, stepvan_error *error);

/* STEPVAN_PROTOCOL unless the bytes are a plan whose boxes all lie in their parameters. */
int32_t stepvan_reshard_check(const void *plan, uint64_t bytes, stepvan_error *error);

/*
 * Writes to *rank which of the ranks with a parameter the destination reads from. Each roster has
 * this one parameter: those of sources as a source, and destination as a destination.
 */
int32_t stepvan_reshard_source(const stepvan_bytes *sources, uint64_t count, const stepvan_bytes *destination, uint32_t *rank, stepvan_error *error);

#ifdef __cplusplus
}
#endif

#endif
