/*
 * Tensors of torch. Its functions in C read them where torch has these (dlpack.c), else their Python attributes.
 * The attributes also tell why an exchange cannot move a tensor. No version of torch is linked.
 */
#include "core.h"

#include "names.h"

/* Whether an attribute is true; -1 with an exception. */
static int truth(PyObject *object, PyObject *name)
{
	PyObject *value = PyObject_GetAttr(object, name);
	if (value == NULL)
		return -1;
	int is = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
	Py_DECREF(value);
	return is;
}

/* Whether a method without arguments returns true; -1 with an exception. */
static int says(PyObject *object, PyObject *name)
{
	PyObject *value = PyObject_CallMethodObjArgs(object, name, NULL);
	if (value == NULL)
		return -1;
	int is = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
	Py_DECREF(value);
	return is;
}

static int wrong_device(PyObject *object, const operand *as)
{
	PyErr_Clear();
	PyObject *device = PyObject_GetAttr(object, name_device);
	if (device == NULL)
		return refuse(as, "its device cannot be read");
	refuse_for(as, "it is on device %U; this build moves tensors in the memory of the CPU: use .cpu()", device, 1);
	Py_DECREF(device);
	return -1;
}

/* Whether a tensor has other values than its memory: lazily conjugated or negated. */
static int check_lazy(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	int complex = tensor->dtype >= STEPVAN_COMPLEX32 && tensor->dtype <= STEPVAN_COMPLEX128;
	int lazy = complex ? says(object, name_is_conj) : 0;
	if (lazy == 0)
		lazy = says(object, name_is_neg);
	if (lazy < 0) { /* a version without lazy tensors */
		PyErr_Clear();
		return 0;
	}
	return lazy ? refuse(as, "it is conjugated or negated lazily: use .resolve_conj() and .resolve_neg()") : 0;
}

static int set_dtype(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *dtype = PyObject_GetAttr(object, name_dtype);
	if (dtype == NULL)
		return refuse(as, "it has no dtype");
	int code = dtype_code(dtype);
	tensor->dtype = (uint8_t)code;
	if (code == 0)
		refuse_for(as, "elements of type %U cannot be moved; .view() it as an integer type of the same size", dtype, 1);
	Py_DECREF(dtype);
	return code == 0 ? -1 : 0;
}

static int set_data(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *address = PyObject_CallMethodObjArgs(object, name_data_ptr, NULL);
	if (address == NULL)
		return refuse(as, "its memory cannot be reached");
	tensor->data = PyLong_AsVoidPtr(address);
	Py_DECREF(address);
	if (tensor->data == NULL && (PyErr_Occurred() != NULL || tensor->bytes > 0))
		return refuse(as, "it has no memory");
	return 0;
}

/* The storage of a tensor of torch: it holds the memory, and the tensor may get another one. New reference. */
PyObject *storage_of(PyObject *object)
{
	if (torch.storage != NULL) {
		PyObject *storage = PyObject_CallMethodObjArgs(object, torch.storage, NULL);
		if (storage != NULL)
			return storage;
		PyErr_Clear();
	}
	Py_INCREF(object);
	return object;
}

/* All bytes of a storage as a tensor. New reference. */
static PyObject *bytes_of(PyObject *storage)
{
	PyObject *none = Py_BuildValue("(i)", 0);
	PyObject *bytes = none != NULL ? PyObject_Call(torch.make, none, torch.make_with[STEPVAN_UINT8]) : NULL;
	PyObject *set = bytes != NULL ? PyObject_CallMethodObjArgs(bytes, name_set_, storage, NULL) : NULL;
	Py_XDECREF(none);
	Py_XDECREF(bytes);
	return set;
}

/* Whether torch reports that a storage cannot be resized anyway. Torch before 2.1 does not report it. */
static int is_fixed(PyObject *storage)
{
	PyObject *resizable = PyObject_CallMethodObjArgs(storage, name_resizable, NULL);
	if (resizable == NULL)
		PyErr_Clear();
	Py_XDECREF(resizable);
	return resizable == Py_False;
}

/* The result of fix_storage with an exception set: 0 if the storage cannot be resized anyway. */
static int cannot_fix(PyObject *storage)
{
	if (!PyErr_ExceptionMatches(PyExc_Exception)) /* an interrupt passes to the program */
		return -1;
	PyObject *type, *why, *traceback;
	PyErr_Fetch(&type, &why, &traceback);
	int fixed = is_fixed(storage);
	if (!fixed)
		raise_not_supported("register: tensor: torch could resize it, which frees its memory: only a numpy that works with torch prevents "
		                    "that (%S): install another numpy (for torch before 2.3: 'numpy<2'), or use a tensor of node.empty", why != NULL ? why : type);
	Py_XDECREF(type);
	Py_XDECREF(why);
	Py_XDECREF(traceback);
	return fixed ? 0 : -1;
}

/*
 * Makes torch refuse to resize the storage of a tensor, which would free registered memory. Torch refuses that for
 * good once numpy has a view of the storage. The view is of bytes, as numpy lacks some types. Where torch does not
 * work with the installed numpy, a tensor whose storage can be resized is refused. Budget: 5 us.
 */
int fix_storage(PyObject *object)
{
	PyObject *storage = storage_of(object);
	PyObject *bytes = storage != object ? bytes_of(storage) : NULL;
	PyObject *array = bytes != NULL ? PyObject_CallMethodObjArgs(bytes, name_numpy, NULL) : NULL;
	Py_XDECREF(array);
	Py_XDECREF(bytes);
	int failed = PyErr_Occurred() == NULL ? 0 : cannot_fix(storage);
	Py_DECREF(storage);
	return failed;
}

/* Sparse tensors of torch 2 are not contiguous either, which .contiguous() does not change. */
static int not_contiguous(PyObject *object, const operand *as)
{
	PyObject *layout = PyObject_GetAttr(object, name_layout);
	PyObject *text = layout != NULL ? PyObject_Str(layout) : NULL;
	Py_XDECREF(layout);
	if (text == NULL)
		return refuse(as, "its layout cannot be read");
	int strided = PyUnicode_CompareWithASCIIString(text, "torch.strided") == 0;
	Py_DECREF(text);
	return refuse(as, strided ? "it is not contiguous: use .contiguous()" : "it is not dense: use .to_dense()");
}

/* Reads the strides of a view. Those of sparse tensors raise. */
static int read_strides(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	PyObject *strides = PyObject_CallMethodObjArgs(object, name_stride, NULL);
	if (strides == NULL)
		return refuse(as, "it is not dense: use .to_dense()");
	int failed = set_strides(as, tensor, strides, dtype_size(tensor->dtype));
	Py_DECREF(strides);
	return failed;
}

/*
 * One element is contiguous whatever its strides are. Before torch 2 sparse tensors raise, here or for their
 * memory.
 */
static int check_contiguous(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	if (as->strides != NULL)
		return read_strides(object, as, tensor);
	if (tensor->bytes == dtype_size(tensor->dtype))
		return 0;
	int contiguous = says(object, name_is_contiguous);
	if (contiguous < 0)
		return refuse(as, "it is not dense");
	return contiguous ? 0 : not_contiguous(object, as);
}

static int set_shape_of(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *shape = PyObject_GetAttr(object, name_shape);
	if (shape == NULL)
		return refuse(as, "it has no shape");
	int failed = set_shape(tensor, shape, as);
	Py_DECREF(shape);
	return failed;
}

/* CUDA in the numbers of DLPack. */
#define KIND_CUDA 2

/* Reads which accelerator holds a tensor. */
static int set_device(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *device = PyObject_GetAttr(object, name_device);
	PyObject *type = device != NULL ? PyObject_GetAttr(device, name_type) : NULL;
	PyObject *index = type != NULL ? PyObject_GetAttr(device, name_index) : NULL;
	int known = index != NULL && PyUnicode_Check(type) && PyUnicode_CompareWithASCIIString(type, "cuda") == 0;
	long number = known && index != Py_None ? PyLong_AsLong(index) : 0;
	Py_XDECREF(index);
	Py_XDECREF(type);
	Py_XDECREF(device);
	if (!known || number < 0 || number > UINT16_MAX)
		return wrong_device(object, as);
	tensor->device_kind = KIND_CUDA;
	tensor->device = (uint16_t)number;
	return 0;
}

/* The stream of torch that works on the device of a tensor at present. New reference. */
static PyObject *current_stream(const stepvan_tensor *tensor)
{
	PyObject *module = PyImport_ImportModule("torch");
	PyObject *cuda = module != NULL ? PyObject_GetAttrString(module, "cuda") : NULL;
	PyObject *current = cuda != NULL ? PyObject_CallMethod(cuda, "current_stream", "i", (int)tensor->device) : NULL;
	Py_XDECREF(cuda);
	Py_XDECREF(module);
	return current;
}

static int handle_of(PyObject *current, uint64_t *stream)
{
	PyObject *handle = current != NULL ? PyObject_GetAttrString(current, "cuda_stream") : NULL;
	*stream = handle != NULL ? PyLong_AsUnsignedLongLong(handle) : 0;
	Py_XDECREF(handle);
	Py_XDECREF(current);
	return PyErr_Occurred() != NULL ? -1 : 0;
}

/*
 * Waits for the work that the current stream has for the device of a tensor. That work may still write to the memory,
 * also for a tensor that had it before.
 */
int await_stream(const stepvan_tensor *tensor)
{
	PyObject *current = current_stream(tensor);
	PyObject *done = current != NULL ? PyObject_CallMethodObjArgs(current, name_synchronize, NULL) : NULL;
	Py_XDECREF(done);
	Py_XDECREF(current);
	return done == NULL ? -1 : 0;
}

/* Whether an accelerator holds one of the tensors, and the stream that works on it; -1 with an exception. */
int stream_of(const stepvan_tensor *list, Py_ssize_t count, uint64_t *stream)
{
	for (Py_ssize_t i = 0; i < count; i++)
		if (list[i].device_kind != 0)
			return handle_of(current_stream(&list[i]), stream) < 0 ? -1 : 1;
	return 0;
}

/* Reads where the storage of a tensor is that an accelerator holds. at->like is a new reference. */
int accelerator_of(PyObject *object, const stepvan_tensor *tensor, PyObject *storage, accelerator *at)
{
	if (storage == object) {
		raise_not_supported("register_recv_buffer: tensor: an accelerator holds it, and this torch does not show its storage: use a newer torch");
		return -1;
	}
	PyObject *elements = PyObject_CallMethodObjArgs(object, name_storage_offset, NULL);
	uint64_t before = elements != NULL ? PyLong_AsUnsignedLongLong(elements) * dtype_size(tensor->dtype) : 0;
	Py_XDECREF(elements);
	if (PyErr_Occurred() != NULL)
		return -1;
	at->storage = storage;
	at->start = (uintptr_t)tensor->data - before;
	at->like = PyObject_CallMethod(object, "new_empty", "((i))", 0);
	return at->like == NULL ? -1 : 0;
}

/* The type of torch's tensors for a type: where torch lacks it, signed integers of its size, which every torch has. */
static int shown_as(int code)
{
	static const uint8_t integers[] = {[1] = STEPVAN_UINT8, [2] = STEPVAN_INT16, [4] = STEPVAN_INT32, [8] = STEPVAN_INT64};
	return torch.dtype[code] != NULL ? code : integers[dtype_size(code)];
}

/*
 * A tensor in memory of an accelerator. It holds the storage, and is not a view of the program's tensor. New reference.
 * Budget: 3 us.
 */
PyObject *accelerator_view(const accelerator *at, const stepvan_tensor *tensor)
{
	int code = shown_as(tensor->dtype);
	uint64_t before = (uintptr_t)tensor->data - at->start, size = dtype_size(code);
	if (before % size != 0) /* complex128 alone has more bytes than its alignment */
		return raise_invalid("a push of %s: it begins %llu bytes behind the beginning of its storage, where torch shows none (want a multiple of %llu): "
		                     "register a buffer whose chunks begin at one",
		                     dtype_name(code), (unsigned long long)before, (unsigned long long)size);
	PyObject *make = PyObject_GetAttr(at->like, name_new_empty), *none = Py_BuildValue("((i))", 0);
	PyObject *empty = make != NULL && none != NULL ? PyObject_Call(make, none, torch.wrap_with[code]) : NULL;
	PyObject *first = PyLong_FromUnsignedLongLong(before / size), *shape = shape_of(tensor), *view = NULL;
	if (empty != NULL && first != NULL && shape != NULL)
		view = PyObject_CallMethodObjArgs(empty, name_set_, at->storage, first, shape, NULL);
	Py_XDECREF(shape);
	Py_XDECREF(first);
	Py_XDECREF(empty);
	Py_XDECREF(none);
	Py_XDECREF(make);
	return view;
}

/* Refuses a view of a storage that the program has resized or moved: the push is where the storage was. */
int accelerator_check(PyObject *view, const stepvan_tensor *tensor)
{
	PyObject *address = PyObject_CallMethodObjArgs(view, name_data_ptr, NULL);
	void *data = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
	Py_XDECREF(address);
	if (PyErr_Occurred() != NULL)
		return -1;
	if (data == tensor->data || tensor->bytes == 0)
		return 0;
	raise_invalid("a push: the storage of its receive buffer was resized or moved after its registration (got address %p, want %p): leave it as it is until unregister",
	              data, tensor->data);
	return -1;
}

/* Reads a tensor by its attributes. */
static int look(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	if (truth(object, name_is_cpu) != 1 && set_device(object, as, tensor) < 0)
		return -1;
	if (set_shape_of(object, as, tensor) < 0 || set_dtype(object, as, tensor) < 0 || set_bytes(tensor, as) < 0 || check_contiguous(object, as, tensor) < 0)
		return -1;
	return set_data(object, as, tensor);
}

/* Only views of parts of complex numbers are negated; with more than one element they are not contiguous. */
static int may_be_lazy(const operand *as, const stepvan_tensor *tensor)
{
	if (tensor->dtype < STEPVAN_FLOAT16)
		return 0;
	return tensor->dtype >= STEPVAN_COMPLEX32 || tensor->bytes <= dtype_size(tensor->dtype) || (as->strides != NULL && !is_packed(tensor, as->strides));
}

/* *holder gets the tensor itself: see owner_settle. */
int tensor_of_torch(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	/* Tensors of other classes may define their attributes themselves. */
	int plain = torch.exchange != NULL && (PyObject *)Py_TYPE(object) == torch.type;
	if ((!plain || !dlpack_look(torch.exchange, object, as, tensor)) && look(object, as, tensor) < 0)
		return -1;
	if (may_be_lazy(as, tensor) && check_lazy(object, as, tensor) < 0)
		return -1;
	Py_INCREF(object);
	*holder = object;
	return 0;
}
