/* Tensors that speak DLPack (jax, cupy, tensorflow, ...): https://dmlc.github.io/dlpack. */
#include "core.h"

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

#define DL_CPU 1
#define DL_CUDA_HOST 3
#define DL_READ_ONLY 1u

static int contiguous(const dl_tensor *t)
{
	int64_t step = 1;
	for (int32_t i = t->ndim - 1; t->strides != NULL && i >= 0; i--) {
		if (t->shape[i] == 0)
			return 1;
		if (t->shape[i] != 1 && t->strides[i] != step)
			return 0;
		step *= t->shape[i];
	}
	return 1;
}

static int describe(const dl_tensor *t, const operand *as, stepvan_tensor *tensor)
{
	if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST)
		return refuse(as, "it is on a device of DLPack type %d; this build moves tensors in the memory of the CPU", t->device.type);
	if (t->ndim > STEPVAN_MAX_RANK)
		return refuse(as, "it has %d dimensions; %d are the most", t->ndim, STEPVAN_MAX_RANK);
	int code = dtype_of_dlpack(t->kind, t->bits, t->lanes);
	if (code == 0)
		return refuse(as, "elements of DLPack type (%d, %d bits, %d lanes) cannot be moved", t->kind, t->bits, t->lanes);
	if (!contiguous(t))
		return refuse(as, "it is not contiguous");
	tensor->dtype = (uint8_t)code;
	tensor->rank = (uint8_t)t->ndim;
	for (int32_t i = 0; i < t->ndim; i++)
		tensor->shape[i] = t->shape[i];
	tensor->data = (char *)t->data + t->offset;
	return set_bytes(tensor, as);
}

/* What __dlpack__ gives: a capsule with the flags of version 1 where it knows them. New reference. */
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

/* Arrays of jax are never written to, but an older DLPack cannot say so. */
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
 * method is the object's __dlpack__; what else it raises than that it cannot is the program's. The capsule keeps the memory:
 * nobody consumes it, so that it gives it back when it goes.
 */
int tensor_of_dlpack(PyObject *object, PyObject *method, const operand *as, stepvan_tensor *tensor, PyObject **keep)
{
	PyObject *capsule = capsule_of(method);
	if (capsule == NULL)
		return is_argument_error() ? refuse(as, "its __dlpack__ failed") : -1;
	*keep = capsule;
	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		dl_versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		if (v->major != 1)
			return refuse(as, "it speaks version %d of DLPack, not 1", (int)v->major);
		if (as->write && (v->flags & DL_READ_ONLY) != 0)
			return refuse(as, "it is read-only, and would be written to");
		return describe(&v->tensor, as, tensor);
	}
	if (!PyCapsule_IsValid(capsule, "dltensor"))
		return refuse(as, "its __dlpack__ gave no capsule of a tensor");
	if (as->write && immutable(object))
		return refuse(as, "it is read-only, and would be written to");
	dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
	return describe(&m->tensor, as, tensor);
}
