/* Registrations. */
#include "core.h"

/*
 * Registered memory must not move. Torch cannot resize tensors in memory of stepvan_alloc. Nothing has torch refuse to
 * resize what an accelerator holds.
 */
static int fix(PyObject *object, const stepvan_tensor *tensor)
{
	int resizable = tensor->memory == 0 && tensor->device_kind == 0 && tensor->bytes > 0 && torch.type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)torch.type);
	return resizable ? fix_storage(object) : 0;
}

/* register(node, tensor) -> registration */
PyObject *register_tensor(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, number;
	stepvan_error error;
	stepvan_tensor tensor;
	PyObject *holder;
	operand as = {"tensor", -1, 0};
	collect_released(); /* before the tensor is read: deallocated objects may run code that moves it */
	if (expect(count, 2, 2, "register") < 0 || to_u64(args[0], &node, "node") < 0 || tensor_of(args[1], &as, &tensor, &holder) < 0)
		return NULL;
	if (fix(holder, &tensor) < 0) {
		Py_DECREF(holder);
		return NULL;
	}
	PyObject *owner = owner_of(holder);
	if (owner == NULL)
		return NULL;
	owner_settle(owner);
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_register(node, &tensor, (uintptr_t)owner, &number, &error);
	Py_END_ALLOW_THREADS
	if (check(code, &error) < 0) {
		Py_DECREF(owner);
		return NULL;
	}
	return PyLong_FromUnsignedLongLong(number);
}

/* How long register_recv_buffer itself waits; registration_wait waits further. */
#define FIRST INT64_C(5000000)

static PyObject *begin(uint64_t node, const stepvan_tensor *tensor, PyObject *chunks, const uint64_t *ranks, const uint64_t *keys, Py_ssize_t count)
{
	stepvan_error error;
	uint64_t number = 0;
	uint32_t *narrow = PyMem_Malloc(((size_t)count + 1) * sizeof(uint32_t));
	if (narrow == NULL)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < count; i++)
		narrow[i] = ranks[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)ranks[i]; /* not a rank either */
	Py_INCREF(chunks);
	int32_t code;
	Py_BEGIN_ALLOW_THREADS
	code = stepvan_register_recv_buffer(node, tensor, (uintptr_t)chunks, narrow, keys, (uint64_t)count, FIRST, &number, &error);
	Py_END_ALLOW_THREADS
	PyMem_Free(narrow);
	if (code == STEPVAN_OK || code == STEPVAN_TIMEOUT)
		return Py_BuildValue("(KOO)", (unsigned long long)number, chunks, code == STEPVAN_OK ? Py_True : Py_False);
	if (number == 0) /* the library has not taken the owner */
		Py_DECREF(chunks);
	return raise_code(code, &error);
}

static PyObject *new_chunks(const stepvan_tensor *tensor, Py_ssize_t count, PyObject *holder)
{
	int is_torch = torch.type != NULL && PyObject_TypeCheck(holder, (PyTypeObject *)torch.type);
	PyObject *storage = is_torch ? storage_of(holder) : NULL, *chunks = NULL;
	accelerator at = {0};
	if (tensor->device_kind == 0 || accelerator_of(holder, tensor, storage, &at) == 0)
		chunks = chunks_new(tensor, count, is_torch ? storage : holder, &at);
	Py_XDECREF(at.like);
	Py_XDECREF(storage);
	return chunks;
}

/* Reads the tensor of a receive buffer. No work of the program writes to its memory any more. */
static int buffer_of(PyObject *object, stepvan_tensor *tensor, PyObject **holder)
{
	operand as = {"tensor", -1, 1};
	if (tensor_of(object, &as, tensor, holder) < 0)
		return -1;
	if (tensor->device_kind == 0)
		return 0;
	int failed = await_stream(tensor);
	Py_CLEAR(*holder);
	return failed < 0 ? -1 : tensor_of(object, &as, tensor, holder); /* other threads ran meanwhile */
}

/*
 * register_recv_buffer(node, tensor, worker_ranks, push_keys) -> (registration, Chunks, whether the workers know).
 * registration_wait waits further.
 */
PyObject *register_recv_buffer(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	stepvan_tensor tensor;
	PyObject *holder, *chunks = NULL, *result = NULL;
	Py_ssize_t ranks_count = 0, keys_count = 0;
	collect_released();
	if (expect(count, 4, 4, "register_recv_buffer") < 0 || to_u64(args[0], &node, "node") < 0 || buffer_of(args[1], &tensor, &holder) < 0)
		return NULL;
	uint64_t *ranks = to_numbers(args[2], &ranks_count, "worker_ranks");
	uint64_t *keys = ranks != NULL ? to_numbers(args[3], &keys_count, "push_keys") : NULL;
	if (keys != NULL && ranks_count != keys_count)
		raise_invalid("%zd worker_ranks and %zd push_keys: give one of each per chunk", ranks_count, keys_count);
	else if (keys != NULL && fix(holder, &tensor) == 0)
		chunks = new_chunks(&tensor, ranks_count, holder);
	if (chunks != NULL)
		result = begin(node, &tensor, chunks, ranks, keys, ranks_count);
	PyMem_Free(ranks);
	PyMem_Free(keys);
	Py_XDECREF(chunks);
	Py_DECREF(holder);
	return result;
}

static int32_t wait_registration(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_registration_wait(*(uint64_t *)call, slice, error);
}

/* registration_wait(registration, timeout) */
PyObject *registration_wait(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t number;
	int64_t limit;
	if (expect(count, 2, 2, "registration_wait") < 0 || to_u64(args[0], &number, "registration") < 0 || to_limit(args[1], &limit) < 0)
		return NULL;
	int failed = wait_for(wait_registration, &number, limit);
	PyObject *type, *value, *traceback; /* the failure, saved while objects are deallocated */
	PyErr_Fetch(&type, &value, &traceback);
	collect_released(); /* a refused buffer is the program's again from here on */
	PyErr_Restore(type, value, traceback);
	if (failed < 0)
		return NULL;
	Py_RETURN_NONE;
}

static int32_t end(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_unregister(*(uint64_t *)call, slice, error);
}

/* unregister(registration, timeout) */
PyObject *unregister(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t number;
	int64_t limit;
	if (expect(count, 2, 2, "unregister") < 0 || to_u64(args[0], &number, "registration") < 0 || to_limit(args[1], &limit) < 0)
		return NULL;
	if (wait_for(end, &number, limit) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}
