/* Tensors with DLPack (jax, cupy, tensorflow, ...): https://dmlc.github.io/dlpack. */
#include "core.h"

#include <stdlib.h>

#include "names.h"

typedef struct {
	int32_t type, id;
} dl_device;

typedef struct {
	void *data;
	dl_device device;
	int32_t ndim;
	uint8_t kind, bits;
	uint16_t lanes;
	int64_t *shape, *strides; /* strides in elements; NULL: contiguous */
	uint64_t offset;
} dl_tensor;

/* DLManagedTensor. */
typedef struct {
	dl_tensor tensor;
	void *context;
	void (*deleter)(void *);
} dl_managed;

/* DLManagedTensorVersioned, of version 1. */
typedef struct {
	uint32_t major, minor;
	void *context;
	void (*deleter)(void *);
	uint64_t flags;
	dl_tensor tensor;
} dl_versioned;

/* DLPackExchangeAPI, of version 1.3: functions in C that a type of tensors has as __dlpack_c_exchange_api__. */
typedef struct dl_exchange {
	uint32_t major, minor;
	struct dl_exchange *older;
	void *allocate, *lend;
	int (*make)(dl_versioned *tensor, void **object);
	int (*look)(void *object, dl_tensor *tensor);
	void *stream;
} dl_exchange;

#define DL_CPU 1
#define DL_CUDA_HOST 3
#define DL_READ_ONLY 1u

/* Sets the strides of a view; a tensor without strides is contiguous. */
static int view_strides(const dl_tensor *t, const operand *as, const stepvan_tensor *tensor)
{
	int64_t step = 1;
	for (int i = t->ndim - 1; i >= 0; i--) {
		if (set_stride(as, tensor, i, t->strides != NULL ? t->strides[i] : step, dtype_size(tensor->dtype)) < 0)
			return -1;
		step *= tensor->bytes > 0 ? t->shape[i] : 1;
	}
	return 0;
}

static int describe(const dl_tensor *t, const operand *as, stepvan_tensor *tensor)
{
	if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST)
		return refuse(as, "it is on a device of DLPack type %d; this build moves tensors in the memory of the CPU", t->device.type);
	if (t->ndim > STEPVAN_MAX_RANK)
		return refuse(as, "it has %d dimensions (want at most %d)", t->ndim, STEPVAN_MAX_RANK);
	int code = dtype_of_dlpack(t->kind, t->bits, t->lanes);
	if (code == 0)
		return refuse(as, "elements of DLPack type (%d, %d bits, %d lanes) cannot be moved", t->kind, t->bits, t->lanes);
	tensor->dtype = (uint8_t)code;
	tensor->rank = (uint8_t)t->ndim;
	for (int32_t i = 0; i < t->ndim; i++)
		tensor->shape[i] = t->shape[i];
	tensor->data = (char *)t->data + t->offset;
	if (as->strides == NULL && t->strides != NULL && !is_packed(tensor, t->strides))
		return refuse(as, "it is not contiguous");
	if (set_bytes(tensor, as) < 0)
		return -1;
	return as->strides != NULL ? view_strides(t, as, tensor) : 0;
}

/* Calls __dlpack__: a capsule, with the flags of version 1 where the object knows them. New reference. */
static PyObject *capsule_of(PyObject *method)
{
	PyObject *none = PyTuple_New(0), *with = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
	PyObject *capsule = NULL;
	if (none != NULL && with != NULL) {
		capsule = PyObject_Call(method, none, with);
		if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
			PyErr_Clear();
			capsule = PyObject_CallFunctionObjArgs(method, NULL);
		}
	}
	Py_XDECREF(none);
	Py_XDECREF(with);
	return capsule;
}

/* Arrays of jax are read-only, but an older DLPack cannot say so. */
static int immutable(PyObject *object)
{
	PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
	PyObject *prefix = PyUnicode_FromString("jax");
	int is = module != NULL && prefix != NULL && PyUnicode_Check(module) && PyUnicode_Tailmatch(module, prefix, 0, 3, -1) == 1;
	Py_XDECREF(module);
	Py_XDECREF(prefix);
	PyErr_Clear();
	return is;
}

/*
 * method is the object's __dlpack__. An exception other than a refusal is passed to the program. The capsule holds
 * the memory: it is never consumed, so it releases the memory when it is deallocated.
 */
int tensor_of_dlpack(PyObject *object, PyObject *method, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	PyObject *capsule = capsule_of(method);
	if (capsule == NULL)
		return is_argument_error() ? refuse(as, "its __dlpack__ failed") : -1;
	*holder = capsule;
	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		dl_versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		if (v->major != 1)
			return refuse(as, "it has version %d of DLPack (want 1)", (int)v->major);
		if (as->write && (v->flags & DL_READ_ONLY) != 0)
			return refuse(as, "it is read-only, and would be written to");
		return describe(&v->tensor, as, tensor);
	}
	if (!PyCapsule_IsValid(capsule, "dltensor"))
		return refuse(as, "its __dlpack__ returned no capsule of a tensor");
	if (as->write && immutable(object))
		return refuse(as, "it is read-only, and would be written to");
	dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
	return describe(&m->tensor, as, tensor);
}

/* The functions in C of a type of tensors; NULL when it has none of this version. They stay for ever. */
const void *dlpack_exchange(PyObject *class)
{
	PyObject *capsule = PyObject_GetAttr(class, name___dlpack_c_exchange_api__);
	const dl_exchange *x = capsule != NULL ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
	Py_XDECREF(capsule);
	PyErr_Clear();
	while (x != NULL && x->major != 1)
		x = x->older;
	return x != NULL && x->look != NULL && x->make != NULL ? x : NULL;
}

/*
 * Reads a tensor of a type with such functions. Returns 0 when it cannot read the tensor, or an exchange cannot
 * move it: then the caller finds the reason in its attributes. Budget: 50 ns.
 */
int dlpack_look(const void *exchange, PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	dl_tensor t;
	if (((const dl_exchange *)exchange)->look(object, &t) != 0) {
		PyErr_Clear();
		return 0;
	}
	int code = dtype_of_dlpack(t.kind, t.bits, t.lanes);
	if (t.device.type != DL_CPU || t.ndim > STEPVAN_MAX_RANK || code == 0)
		return 0;
	tensor->dtype = (uint8_t)code;
	tensor->rank = (uint8_t)t.ndim;
	for (int32_t i = 0; i < t.ndim; i++)
		tensor->shape[i] = t.shape[i];
	if (!count_bytes(tensor) || (as->strides == NULL && t.strides != NULL && !is_packed(tensor, t.strides)))
		return 0;
	if (as->strides != NULL && view_strides(&t, as, tensor) < 0) {
		PyErr_Clear();
		return 0;
	}
	tensor->data = (char *)t.data + t.offset;
	return t.data != NULL || tensor->bytes == 0;
}

/* A tensor in memory of the library, until it is deallocated. */
typedef struct {
	dl_versioned versioned;
	PyObject *memory;
	int64_t shape[STEPVAN_MAX_RANK], strides[STEPVAN_MAX_RANK];
} showing;

/* Runs on any thread, with or without the interpreter lock. A tensor that outlives the interpreter is not freed. */
static void free_wrapped(void *versioned)
{
	showing *s = ((dl_versioned *)versioned)->context;
	if (Py_IsInitialized()) {
		PyGILState_STATE state = PyGILState_Ensure();
		Py_DECREF(s->memory);
		PyGILState_Release(state);
	}
	free(s);
}

/* A tensor, made by such functions, in memory from its beginning; it holds the memory. New reference. */
PyObject *dlpack_wrap(const void *exchange, PyObject *memory, void *data, const stepvan_tensor *tensor)
{
	showing *s = calloc(1, sizeof(showing));
	if (s == NULL)
		return PyErr_NoMemory();
	s->versioned = (dl_versioned){.major = 1, .minor = 1, .context = s, .deleter = free_wrapped};
	dl_tensor *t = &s->versioned.tensor;
	*t = (dl_tensor){.data = data, .device = {DL_CPU, 0}, .ndim = tensor->rank};
	t->shape = s->shape;
	t->strides = s->strides;
	dtype_to_dlpack(tensor->dtype, &t->kind, &t->bits, &t->lanes);
	int64_t step = 1;
	for (int i = tensor->rank - 1; i >= 0; i--) {
		s->shape[i] = tensor->shape[i];
		s->strides[i] = step;
		step *= tensor->shape[i];
	}
	Py_INCREF(memory);
	s->memory = memory;
	void *object = NULL;
	return ((const dl_exchange *)exchange)->make(&s->versioned, &object) == 0 ? object : NULL; /* on an error it is unknown which side owns it */
}
