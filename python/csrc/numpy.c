/* Arrays of numpy, with the dtypes of ml_dtypes. */
#include "core.h"

#include "names.h"

/* An array of numpy 1 and 2, as every extension that is compiled for one of them sees it. */
typedef struct {
	PyObject_HEAD
	void *data;
	int rank;
	Py_ssize_t *shape, *strides;
	PyObject *base, *dtype;
	unsigned flags;
} array;

/* The flags of an array. */
#define CONTIGUOUS 1u
#define CONTIGUOUS_BY_COLUMNS 2u
#define WRITEABLE (1u << 10)
#define WARN_ON_WRITE (1u << 31) /* of views whose elements share memory */

/*
 * Whether arrays of type ndarray are as above. The first of numpy's functions in C returns the version of that layout;
 * later ones may differ. The third entry is the type of the arrays. It shows that the functions are numpy's, and of the
 * numpy that the type is of.
 */
int numpy_is_known(PyObject *ndarray, PyObject *functions)
{
	void **table = PyCapsule_IsValid(functions, NULL) ? PyCapsule_GetPointer(functions, NULL) : NULL;
	if (table == NULL || table[2] != ndarray)
		return 0;
	unsigned version = ((unsigned (*)(void))table[0])();
	return version == 0x01000009 || version == 0x02000000;
}

/*
 * Reads an array. Returns 0 when nothing here can move it, or does not know its type yet: then the caller reads its
 * attributes. Returns -1 with an exception for strides that no view has. Budget: 10 ns.
 */
static int look(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	const array *a = (array *)object;
	int code = dtype_code(a->dtype);
	if (code == 0 || a->rank > STEPVAN_MAX_RANK || ((a->flags & CONTIGUOUS) == 0 && as->strides == NULL))
		return 0;
	if (as->write && (a->flags & (WRITEABLE | WARN_ON_WRITE)) != WRITEABLE)
		return 0;
	tensor->dtype = (uint8_t)code;
	tensor->rank = (uint8_t)a->rank;
	for (int i = 0; i < a->rank; i++)
		tensor->shape[i] = a->shape[i];
	if (!count_bytes(tensor))
		return 0;
	for (int i = 0; as->strides != NULL && i < a->rank; i++) {
		if (set_stride(as, tensor, i, a->strides[i], 1) < 0)
			return -1;
	}
	tensor->data = a->data;
	return 1;
}

/* Whether the memory of a view is looked for in its base. An array over other memory counts as the owner itself. */
static int is_looked_at(PyObject *base)
{
	if (PyObject_TypeCheck(base, (PyTypeObject *)numpy.type))
		return 1;
	/* A tensor of torch makes another array each time. */
	return torch.type != NULL && PyObject_TypeCheck(base, (PyTypeObject *)torch.type);
}

/*
 * The array that another one is a view of, or the tensor of torch whose memory it shows. Steals a reference. New
 * reference.
 */
PyObject *numpy_owner(PyObject *object)
{
	PyObject *base;
	while (PyObject_TypeCheck(object, (PyTypeObject *)numpy.type) && (base = ((array *)object)->base) != NULL) {
		if (!is_looked_at(base))
			break;
		Py_INCREF(base);
		Py_DECREF(object);
		object = base;
	}
	return object;
}

/* Where the memory of an array is. Returns 0 when it has none, or is not contiguous. */
int numpy_place(PyObject *object, uintptr_t *start, uint64_t *bytes)
{
	const array *a = (array *)object;
	PyObject *value = (a->flags & (CONTIGUOUS | CONTIGUOUS_BY_COLUMNS)) != 0 ? PyObject_GetAttr(object, name_nbytes) : NULL;
	*start = (uintptr_t)a->data;
	*bytes = value != NULL ? PyLong_AsUnsignedLongLong(value) : 0;
	Py_XDECREF(value);
	if (PyErr_Occurred() != NULL) {
		PyErr_Clear();
		return 0;
	}
	return a->data != NULL && *bytes > 0;
}

static int set_dtype(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *dtype = PyObject_GetAttr(object, name_dtype);
	if (dtype == NULL)
		return refuse(as, "it has no dtype");
	int code = dtype_code(dtype);
	if (code == 0)
		code = dtype_equal(dtype);
	if (code == 0 && discover(0) == 0) /* the program may have loaded ml_dtypes since */
		code = dtype_equal(dtype);
	tensor->dtype = (uint8_t)code;
	if (code == 0 && PyErr_Occurred() == NULL)
		refuse_for(as, "elements of type %U cannot be moved; .view() it as an integer type of the same size, in this machine's byte order", dtype, 1);
	Py_DECREF(dtype);
	return code == 0 ? -1 : 0;
}

static int flag(PyObject *object, PyObject *name)
{
	PyObject *flags = PyObject_GetAttr(object, name_flags);
	if (flags == NULL)
		return -1;
	PyObject *value = PyObject_GetAttr(flags, name);
	Py_DECREF(flags);
	if (value == NULL)
		return -1;
	int is = PyObject_IsTrue(value);
	Py_DECREF(value);
	return is;
}

/* For types that the buffer protocol does not know (bfloat16), __array_interface__ has the address. */
static int set_data_slowly(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	if (!is_wrong())
		return -1;
	if (as->strides == NULL && flag(object, name_c_contiguous) != 1)
		return refuse(as, "it is not contiguous: use numpy.ascontiguousarray()");
	if (as->write && flag(object, name_writeable) != 1)
		return refuse(as, "it is read-only, and would be written to");
	PyObject *interface = PyObject_GetAttr(object, name___array_interface__);
	if (interface == NULL)
		return refuse(as, "its memory cannot be reached");
	PyObject *data = PyDict_GetItemWithError(interface, name_data); /* (address, read-only) */
	if (data != NULL && PyTuple_Check(data))
		tensor->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
	Py_DECREF(interface);
	return data == NULL || PyErr_Occurred() != NULL ? refuse(as, "its memory cannot be reached") : 0;
}

static int set_data(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	int flags = (as->strides != NULL ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS) | (as->write ? PyBUF_WRITABLE : 0);
	Py_buffer view;
	if (PyObject_GetBuffer(object, &view, flags) < 0)
		return set_data_slowly(object, as, tensor);
	tensor->data = view.buf;
	PyBuffer_Release(&view);
	return 0;
}

/* A subclass may have more than its elements: a masked array would lose its mask. */
static int check_masked(PyObject *object, const operand *as)
{
	PyObject *name = PyUnicode_FromString("numpy.ma"), *module = name != NULL ? PyImport_GetModule(name) : NULL; /* not loaded: there are no masked arrays */
	PyObject *class = module != NULL ? PyObject_GetAttrString(module, "MaskedArray") : NULL;
	int masked = class != NULL ? PyObject_IsInstance(object, class) : PyErr_Occurred() != NULL ? -1 : 0;
	Py_XDECREF(class);
	Py_XDECREF(module);
	Py_XDECREF(name);
	return masked > 0 ? refuse(as, "it is a masked array, whose mask would be lost: use .filled() or .data") : masked;
}

static int read_strides(PyObject *object, const operand *as, const stepvan_tensor *tensor)
{
	PyObject *strides = PyObject_GetAttr(object, name_strides);
	if (strides == NULL)
		return refuse(as, "it has no strides");
	int failed = set_strides(as, tensor, strides, 1);
	Py_DECREF(strides);
	return failed;
}

/* Reads an array by its attributes. */
static int ask(PyObject *object, const operand *as, stepvan_tensor *tensor)
{
	PyObject *shape = PyObject_GetAttr(object, name_shape);
	if (shape == NULL)
		return refuse(as, "it has no shape");
	int failed = set_shape(tensor, shape, as);
	Py_DECREF(shape);
	tensor->data = NULL;
	if (failed < 0 || set_dtype(object, as, tensor) < 0 || set_bytes(tensor, as) < 0)
		return -1;
	if (as->strides != NULL && read_strides(object, as, tensor) < 0)
		return -1;
	return set_data(object, as, tensor);
}

/* The array holds its memory: numpy refuses to resize an array that others refer to. */
int tensor_of_numpy(PyObject *object, const operand *as, stepvan_tensor *tensor, PyObject **holder)
{
	int plain = (PyObject *)Py_TYPE(object) == numpy.type; /* other classes may define their attributes themselves */
	if (!plain && check_masked(object, as) < 0)
		return -1;
	int found = plain && numpy.known ? look(object, as, tensor) : 0;
	if (found < 0 || (found == 0 && ask(object, as, tensor) < 0))
		return -1;
	Py_INCREF(object);
	*holder = object;
	return 0;
}
