/*
 * The extension stepvan._core: Python objects in, the C interface of libstepvan out.
 *
 * Everything here runs with the interpreter lock held, except the code between Py_BEGIN_ALLOW_THREADS and
 * Py_END_ALLOW_THREADS: the calls that wait, and large copies. So tables and caches need no lock of their own. The
 * library never calls the program. The next calls collect the memory that it has released (owners.c).
 *
 * Functions that return int return 0, or -1 with an exception set. "New reference" and "borrowed" have the
 * meanings of the Python manual.
 */
#ifndef STEPVAN_CORE_H
#define STEPVAN_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "stepvan.h"

typedef PyObject *const *arguments;

/* The number of elements of an array. */
#define COUNT(a) ((Py_ssize_t)(sizeof(a) / sizeof((a)[0])))

/* Replaces a reference by a new one, or by NULL. */
static inline void replace(PyObject **place, PyObject *object)
{
	PyObject *old = *place;
	*place = object;
	Py_XDECREF(old);
}

/* errors.c */
PyObject *raise_code(int32_t code, const stepvan_error *error);
PyObject *raise_invalid(const char *format, ...);
PyObject *quoted(PyObject *object, int plain);
PyObject *raise_not_supported(const char *format, ...);
int check(int32_t code, const stepvan_error *error);
int check_on(uint64_t node, const char *what, int32_t code, const stepvan_error *error);
PyObject *raise_closed(const char *what);
PyObject *set_errors(PyObject *self, PyObject *table);

/* lazy.c: the library, loaded at the first use. */
int library_find(void);
int library_load(const char *use);
const char *library_forked(void);

/* numbers.c */
int is_argument_error(void);
int is_wrong(void);
int must_be(PyObject *object, const char *what, Py_ssize_t index, const char *must);
int to_u64(PyObject *object, uint64_t *number, const char *what);
int to_u64_at(PyObject *object, uint64_t *number, const char *what, Py_ssize_t index);
int to_i64(PyObject *object, int64_t *number, const char *what);
int to_limit(PyObject *seconds, int64_t *nanoseconds);
uint64_t *to_numbers(PyObject *object, Py_ssize_t *count, const char *what);
PyObject *to_tuple(PyObject *object, const char *what);
const char *to_text(PyObject *object);
int expect(Py_ssize_t have, Py_ssize_t least, Py_ssize_t most, const char *function);

/* wait.c: a call that waits, made in slices. */
typedef int32_t (*attempt)(void *call, int64_t slice_ns, stepvan_error *error);
int wait_for(attempt function, void *call, int64_t limit_ns);
int wait_on(uint64_t node, const char *what, attempt function, void *call, int64_t limit_ns);

/* owners.c: objects that an operation keeps alive. */
#define FEW 8
typedef struct references {
	PyObject **at;
	Py_ssize_t count, capacity;
	PyObject *few[2 * FEW];
} references;
void references_begin(references *k);
int references_add(references *k, PyObject *object);
PyObject *references_owner(references *k);
PyObject *owner_of(PyObject *holder);
void references_done(references *k);
void owner_settle(PyObject *owner);
void collect_released(void);

/* ranges.c: which object has an address. */
typedef struct range {
	uintptr_t start, end;
	PyObject *object; /* borrowed: the object removes its range before it is deallocated */
} range;
typedef struct ranges {
	range *at;
	Py_ssize_t count, capacity;
} ranges;
int ranges_add(ranges *table, const void *data, uint64_t bytes, PyObject *object);
void ranges_remove(ranges *table, const void *data, PyObject *object);
PyObject *ranges_find(const ranges *table, const void *data, uint64_t bytes);

/* memory.c: an object with the buffer protocol that holds memory. */
typedef struct memory {
	PyObject_HEAD
	void *data;
	uint64_t bytes;
	uint64_t number;   /* of the library, freed with the object; 0: none */
	uint64_t charge;   /* bytes of pooled_bytes_held */
	int allocated;     /* from stepvan_alloc: operations may name it */
	int own_file;      /* with STEPVAN_OWN_FILE */
	int readonly;
	PyObject *holder;    /* the object that the memory belongs to, or NULL */
} memory;
PyObject *memory_new(void *data, uint64_t bytes, uint64_t number, int readonly, PyObject *holder);
PyObject *memory_of_pool(void *data, uint64_t bytes, uint64_t number, uint64_t charge);
extern uint64_t pooled_bytes_held;
uint64_t memory_number(const void *data, uint64_t bytes);
PyObject *allocate(PyObject *self, arguments args, Py_ssize_t count);
PyObject *in_own_file(PyObject *self, arguments args, Py_ssize_t count);
int memory_ready(PyObject *module);

/* dtypes.c */
int dtype_code(PyObject *dtype);
int dtype_learn(PyObject *dtype, int code);
int dtype_equal(PyObject *dtype);
uint64_t dtype_size(int code);
int dtype_of_format(const char *format, Py_ssize_t size);
int dtype_of_dlpack(int kind, int bits, int lanes);
void dtype_to_dlpack(int code, uint8_t *kind, uint8_t *bits, uint16_t *lanes);
const char *dtype_name(int code);
PyObject *dtype_bytes(PyObject *self, PyObject *code);
PyObject *dtype_names(PyObject *self, PyObject *unused);

/* frameworks.c: torch and numpy, where they are loaded. */
#define CODES 32
typedef struct framework {
	PyObject *type;         /* of its tensors; NULL: not loaded */
	PyObject *make;         /* torch.empty, numpy.empty */
	PyObject *wrap;         /* torch.frombuffer, numpy.ndarray */
	PyObject *storage;      /* torch: name of the method that gives a tensor's storage, or NULL */
	PyObject *storages;     /* torch: the class of its storages, or NULL */
	int lasting;            /* torch: whether the object of a storage lives as long as the memory: torch 2.1 and later */
	const void *exchange;   /* the result of dlpack_exchange: torch 2.10 and later; else NULL */
	int known;              /* numpy: whether its arrays are as numpy.c knows them */
	PyObject *dtype[CODES]; /* by code; NULL: it lacks the type */
	PyObject *make_with[CODES]; /* keyword arguments of make */
	PyObject *wrap_with[CODES]; /* keyword arguments of wrap: torch */
} framework;
extern framework torch, numpy;
int discover(int everything);
framework *preferred(void);
PyObject *use_torch(PyObject *self, arguments args, Py_ssize_t count);
PyObject *use_numpy(PyObject *self, arguments args, Py_ssize_t count);
PyObject *set_discover(PyObject *self, PyObject *function);

/* tensor.c and the files that it calls: Python's tensors to stepvan_tensor. */
typedef struct operand {
	const char *list;  /* for messages: "push" */
	Py_ssize_t index;  /* -1: not of a list */
	int write;         /* the library writes to it */
	int64_t *strides;  /* gets the strides in elements, for STEPVAN_MAX_RANK of them; NULL: it must be contiguous */
} operand;
int tensor_of(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder);
int strided_of(PyObject *object, const operand *as, stepvan_view *view, PyObject **holder);
int tensor_of_torch(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder);
int numpy_is_known(PyObject *ndarray, PyObject *functions);
PyObject *numpy_owner(PyObject *array);
int numpy_place(PyObject *array, uintptr_t *start, uint64_t *bytes);
int tensor_of_numpy(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder);
int tensor_of_buffer(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder);
int tensor_of_dlpack(PyObject *object, PyObject *method, const operand *as, stepvan_tensor *tensor, PyObject **holder);
const void *dlpack_exchange(PyObject *class);
int dlpack_look(const void *exchange, PyObject *object, const operand *as, stepvan_tensor *tensor);
PyObject *dlpack_wrap(const void *exchange, PyObject *memory, void *data, const stepvan_tensor *tensor);
int refuse(const operand *as, const char *format, ...);
int refuse_for(const operand *as, const char *format, PyObject *object, int plain);
int set_shape(stepvan_tensor *tensor, PyObject *shape, const operand *as);
int count_bytes(stepvan_tensor *tensor);
int set_bytes(stepvan_tensor *tensor, const operand *as);
int set_stride(const operand *as, const stepvan_tensor *tensor, int dimension, int64_t stride, uint64_t unit);
int set_strides(const operand *as, const stepvan_tensor *tensor, PyObject *strides, uint64_t unit);
int is_packed(const stepvan_tensor *tensor, const int64_t *strides);
PyObject *shape_of(const stepvan_tensor *tensor);

PyObject *storage_of(PyObject *object);
int fix_storage(PyObject *object);

/* A storage of torch in memory of an accelerator. */
typedef struct accelerator {
	PyObject *like;    /* an empty tensor there; NULL: memory of the host */
	PyObject *storage; /* borrowed */
	uintptr_t start;   /* of the storage */
} accelerator;
int accelerator_of(PyObject *object, const stepvan_tensor *tensor, PyObject *storage, accelerator *at);
PyObject *accelerator_view(const accelerator *at, const stepvan_tensor *tensor);
int accelerator_check(PyObject *view, const stepvan_tensor *tensor);
int await_stream(const stepvan_tensor *tensor);

/* A list of tensors, converted. */
typedef struct tensors {
	stepvan_tensor *at;
	Py_ssize_t count;
	stepvan_tensor few[FEW];
} tensors;
int stream_of(const stepvan_tensor *list, Py_ssize_t count, uint64_t *stream);
int tensors_of(tensors *list, PyObject *objects, const char *name, int write, references *kept);
void tensors_done(tensors *list);

/* storages.c: memory of the program that nodes register by themselves. */
extern int storages_wanted; /* how many nodes do so */
void storages_begin(uint64_t node);
void storages_end(uint64_t node);
uint64_t storage_number(PyObject *object, const stepvan_tensor *tensor);
uint64_t storages_open(void);
void storages_close(uint64_t opened, tensors *list);

/* view.c: stepvan_tensor to Python's tensors. */
PyObject *view_of(framework *as, PyObject *memory, const stepvan_tensor *tensor);
PyObject *copy_of(framework *as, const stepvan_tensor *tensor);
PyObject *dtype_object(framework *as, int code);
PyObject *view(PyObject *self, arguments args, Py_ssize_t count);

/* chunks.c: registered receive buffers, and views of their chunks. */
PyObject *chunks_new(const stepvan_tensor *tensor, Py_ssize_t count, PyObject *holder, const accelerator *at);
PyObject *chunk_view(framework *as, const stepvan_tensor *tensor);
int chunks_prepare(void);
int chunks_ready(PyObject *module);

/* views.c: named tensors that a plan moves. */
PyObject *make_views(PyObject *self, arguments args, Py_ssize_t count);
Py_ssize_t views_count(PyObject *object);
const stepvan_view *views_at(PyObject *object, Py_ssize_t i);
const char *views_name(PyObject *object, Py_ssize_t i);
int views_ready(PyObject *module);

/* request.c */
typedef struct left {
	Py_ssize_t at; /* in tensors */
	stepvan_tensor tensor;
} left;
typedef struct request {
	PyObject_HEAD
	uint64_t node, handler;
	long long worker;
	PyObject *server;                 /* of Python: a Response needs it */
	PyObject *tensors, *keys, *views; /* views: the results of input and out, or NULL */
	framework *as;      /* of tensors */
	left *left;         /* pushes in the worker's memory, still to copy; the array lives as long as the request */
	Py_ssize_t lefts;   /* 0: none, or all copied */
	Py_ssize_t pulls;
	stepvan_tensor *pull;
	uint64_t *pull_keys;
} request;
PyObject *request_new(uint64_t node, PyObject *server, const stepvan_request *from, const stepvan_batch *batch, framework *as, PyObject *tensors, PyObject *keys);
PyObject *set_request(PyObject *self, arguments args, Py_ssize_t count);
int request_ready(PyObject *module);

/* The functions of the module, by file. */
PyObject *node_start(PyObject *self, arguments args, Py_ssize_t count);
PyObject *node_stop(PyObject *self, arguments args, Py_ssize_t count);
PyObject *node_close(PyObject *self, PyObject *node);
PyObject *stop_at_exit(PyObject *self, arguments args, Py_ssize_t count);
extern uint64_t closes_begun, closes_ended;
PyObject *node_info(PyObject *self, PyObject *node);
PyObject *node_peer_info(PyObject *self, PyObject *node);
PyObject *node_peers(PyObject *self, PyObject *node);
PyObject *node_health(PyObject *self, PyObject *node);
PyObject *node_barrier(PyObject *self, arguments args, Py_ssize_t count);

PyObject *push_pull(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_wait(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_done(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_operations(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_trace(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_traces(PyObject *self, arguments args, Py_ssize_t count);
PyObject *handle_lengths(PyObject *self, arguments args, Py_ssize_t count);

PyObject *register_tensor(PyObject *self, arguments args, Py_ssize_t count);
PyObject *register_recv_buffer(PyObject *self, arguments args, Py_ssize_t count);
PyObject *registration_wait(PyObject *self, arguments args, Py_ssize_t count);
PyObject *unregister(PyObject *self, arguments args, Py_ssize_t count);

PyObject *get_batch(PyObject *self, arguments args, Py_ssize_t count);
PyObject *answer(uint64_t node, uint64_t handler, PyObject *objects, int copies);
PyObject *respond(PyObject *self, arguments args, Py_ssize_t count);
PyObject *respond_copy(PyObject *self, arguments args, Py_ssize_t count);
PyObject *respond_vec(PyObject *self, arguments args, Py_ssize_t count);
PyObject *respond_vec_copy(PyObject *self, arguments args, Py_ssize_t count);
PyObject *response_wait(PyObject *self, arguments args, Py_ssize_t count);
PyObject *response_done(PyObject *self, arguments args, Py_ssize_t count);

PyObject *queue_open(PyObject *self, PyObject *unused);
PyObject *queue_take(PyObject *self, PyObject *queue);
PyObject *queue_close(PyObject *self, PyObject *queue);
PyObject *notify(PyObject *self, arguments args, Py_ssize_t count);
PyObject *response_notify(PyObject *self, arguments args, Py_ssize_t count);

PyObject *peer_send(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_recv(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_cancel(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_plan(PyObject *self, arguments args, Py_ssize_t count);
PyObject *plan_begin(PyObject *self, arguments args, Py_ssize_t count);
PyObject *plan_state(PyObject *self, PyObject *plan);
PyObject *plan_stats(PyObject *self, PyObject *plan);
PyObject *plan_close(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_group(PyObject *self, arguments args, Py_ssize_t count);
PyObject *group_barrier(PyObject *self, PyObject *group);
PyObject *group_all_gather(PyObject *self, arguments args, Py_ssize_t count);
PyObject *group_broadcast(PyObject *self, arguments args, Py_ssize_t count);
PyObject *group_reduce(PyObject *self, arguments args, Py_ssize_t count);
PyObject *gathered(PyObject *self, arguments args, Py_ssize_t count);
PyObject *group_close(PyObject *self, PyObject *group);
PyObject *group_forget(PyObject *self, PyObject *group);

PyObject *bus_agent(PyObject *self, arguments args, Py_ssize_t count);
PyObject *bus_agent_close(PyObject *self, arguments args, Py_ssize_t count);

PyObject *particle_open(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_close(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_create(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_list(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_hook(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_send(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_get(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_wait(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_is_done(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_notify(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_result(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_failure(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_forget(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_next(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_done(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_share(PyObject *self, arguments args, Py_ssize_t count);
PyObject *particle_views(PyObject *self, arguments args, Py_ssize_t count);

int to_rank(PyObject *object, uint32_t *rank, const char *what, Py_ssize_t index);
PyObject *peer_mail(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_listen(PyObject *self, arguments args, Py_ssize_t count);
PyObject *mailbox_next(PyObject *self, arguments args, Py_ssize_t count);
PyObject *mailbox_notify(PyObject *self, arguments args, Py_ssize_t count);
PyObject *mailbox_close(PyObject *self, PyObject *number);
PyObject *peer_expose(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_unexpose(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_get(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_put(PyObject *self, arguments args, Py_ssize_t count);
PyObject *peer_put_rows(PyObject *self, arguments args, Py_ssize_t count);
PyObject *board_post(PyObject *self, arguments args, Py_ssize_t count);
PyObject *board_unpost(PyObject *self, arguments args, Py_ssize_t count);
PyObject *board_watch(PyObject *self, arguments args, Py_ssize_t count);
PyObject *watch_next(PyObject *self, arguments args, Py_ssize_t count);
PyObject *watch_close(PyObject *self, PyObject *number);

PyObject *part_of_spans(PyObject *self, arguments args, Py_ssize_t count);
PyObject *part_of_mesh(PyObject *self, arguments args, Py_ssize_t count);
PyObject *part_of_partition(PyObject *self, arguments args, Py_ssize_t count);
PyObject *part_shape(PyObject *self, PyObject *part);
PyObject *peer_match(PyObject *self, arguments args, Py_ssize_t count);

PyObject *reshard_plan(PyObject *self, arguments args, Py_ssize_t count);
PyObject *reshard_check(PyObject *self, PyObject *plan);
PyObject *reshard_source(PyObject *self, arguments args, Py_ssize_t count);

PyObject *run_command(PyObject *self, arguments args, Py_ssize_t count);
PyObject *library_version(PyObject *self, PyObject *unused);
PyObject *wheel_version(PyObject *self, PyObject *unused);
PyObject *check_fork(PyObject *self, PyObject *unused);
PyObject *get_nanosecond(PyObject *self, PyObject *unused);
PyObject *collect(PyObject *self, PyObject *unused);

#endif
