/*
 * Views: a list of named tensors that a plan moves again and again, as views with strides. It keeps the tensors and
 * their memory alive. A program may give a tensor of torch other memory meanwhile, so each use asks where it is.
 */
#include "core.h"

#include "names.h"

/* What a plan knows of a tensor. */
typedef struct item {
	PyObject *name, *object;
	PyObject *inner;  /* the name of an attribute of object that is the tensor; NULL: object is the tensor */
	PyObject *holder; /* of the memory: the storage of a tensor of torch, which may get another one */
	stepvan_view view;
} item;

typedef struct views {
	PyObject_HEAD
	Py_ssize_t count;
	int write;
	item *at;
} views;

static PyTypeObject *type;

static int is_of(PyObject *object, const framework *of)
{
	return of->type != NULL && PyObject_TypeCheck(object, (PyTypeObject *)of->type);
}

/* The tensor of an item. New reference. */
static PyObject *tensor_at(const item *i)
{
	if (i->inner != NULL)
		return PyObject_GetAttr(i->object, i->inner);
	Py_INCREF(i->object);
	return i->object;
}

/* Converts the tensor of an item into view. *holder gets a new reference. */
static int convert(const item *i, int write, stepvan_view *view, PyObject **holder)
{
	const char *name = to_text(i->name);
	if (name == NULL)
		return PyErr_Occurred() != NULL ? -1 : must_be(i->name, "the name of a tensor", -1, "text without a 0 character");
	operand as = {name, -1, write, view->strides};
	PyObject *tensor = tensor_at(i);
	if (tensor == NULL)
		return -1;
	int failed = strided_of(tensor, &as, view, holder);
	Py_DECREF(tensor);
	return failed;
}

static void views_dealloc(PyObject *self)
{
	views *v = (views *)self;
	for (Py_ssize_t i = 0; i < v->count; i++) {
		Py_XDECREF(v->at[i].name);
		Py_XDECREF(v->at[i].object);
		Py_XDECREF(v->at[i].inner);
		Py_XDECREF(v->at[i].holder);
	}
	PyMem_Free(v->at);
	PyTypeObject *of = Py_TYPE(self);
	PyObject_Free(self);
	Py_DECREF(of);
}

/* Sets an item from (name, object, name of the attribute or None). */
static int set(item *i, PyObject *from, int write)
{
	if (!PyTuple_Check(from) || PyTuple_Size(from) != 3) {
		PyErr_SetString(PyExc_TypeError, "_core.Views takes (name, object, attribute)");
		return -1;
	}
	i->name = PyTuple_GetItem(from, 0);
	i->object = PyTuple_GetItem(from, 1);
	i->inner = PyTuple_GetItem(from, 2);
	if (i->inner == Py_None)
		i->inner = NULL;
	Py_INCREF(i->name);
	Py_INCREF(i->object);
	Py_XINCREF(i->inner);
	PyObject *holder;
	if (convert(i, write, &i->view, &holder) < 0)
		return -1;
	i->holder = holder;
	if (is_of(holder, &torch))
		replace(&i->holder, storage_of(holder));
	return 0;
}

/* make_views([(name, object, attribute or None)], whether they are written to) -> Views. Budget: 500 ns a tensor. */
PyObject *make_views(PyObject *self, arguments args, Py_ssize_t count)
{
	if (expect(count, 2, 2, "make_views") < 0)
		return NULL;
	PyObject *list = to_tuple(args[0], "tensors");
	if (list == NULL)
		return NULL;
	views *v = PyObject_New(views, type);
	if (v == NULL) {
		Py_DECREF(list);
		return NULL;
	}
	Py_ssize_t n = PyTuple_Size(list);
	v->count = 0;
	v->write = args[1] == Py_True;
	v->at = PyMem_Calloc((size_t)n + 1, sizeof(item));
	int failed = v->at == NULL;
	if (failed)
		PyErr_NoMemory();
	while (!failed && v->count < n) {
		v->count++; /* also what could not be set is given up with the object */
		failed = set(&v->at[v->count - 1], PyTuple_GetItem(list, v->count - 1), v->write) < 0;
	}
	Py_DECREF(list);
	if (failed) {
		Py_DECREF(v);
		return NULL;
	}
	return (PyObject *)v;
}

static int same_shape(const stepvan_view *a, const stepvan_view *b)
{
	size_t bytes = a->rank * sizeof(int64_t);
	return a->rank == b->rank && a->dtype == b->dtype && memcmp(a->shape, b->shape, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0;
}

static int is_empty(const stepvan_view *view)
{
	for (int i = 0; i < view->rank; i++) {
		if (view->shape[i] == 0)
			return 1;
	}
	return 0;
}

/* Puts what has become of a tensor behind the reason why it cannot be read any more. Returns -1. */
static int unreadable(void)
{
	if (!is_argument_error())
		return -1;
	PyObject *type, *why, *traceback;
	PyErr_Fetch(&type, &why, &traceback);
	if (why != NULL)
		raise_invalid("%S, though it could be moved when the plan was made: make the plan again", why);
	Py_XDECREF(type);
	Py_XDECREF(why);
	Py_XDECREF(traceback);
	return -1;
}

/* Raises InvalidError when the memory of a tensor is not where it was. Others than torch and numpy keep it there. */
static int check_item(const item *i, int write)
{
	stepvan_view is;
	PyObject *holder;
	if (i->inner == NULL && !is_of(i->object, &torch) && !is_of(i->object, &numpy))
		return 0;
	if (convert(i, write, &is, &holder) < 0)
		return unreadable();
	Py_DECREF(holder);
	if (!same_shape(&i->view, &is))
		raise_invalid("%U: its shape, strides or type was changed since the plan was made: make the plan again", i->name);
	else if (is.data != i->view.data && !is_empty(&is))
		raise_invalid("%U: its memory was moved or resized since the plan was made (got %p, want %p): make the plan again", i->name, is.data, i->view.data);
	else
		return 0;
	return -1;
}

/*
 * Raises InvalidError, with the first tensor whose memory is not where it was. Budget: 100 ns for a tensor of torch
 * 2.10 and later.
 */
static PyObject *check_views(PyObject *self, PyObject *unused)
{
	views *v = (views *)self;
	for (Py_ssize_t i = 0; i < v->count; i++) {
		if (check_item(&v->at[i], v->write) < 0)
			return NULL;
	}
	Py_RETURN_NONE;
}

/* How many tensors of make_views there are; -1 with an exception. */
Py_ssize_t views_count(PyObject *object)
{
	if (PyObject_TypeCheck(object, type))
		return ((views *)object)->count;
	PyErr_SetString(PyExc_TypeError, "_core takes what make_views has made");
	return -1;
}

/* The view of one of them. It lives as long as the object, which keeps its memory. */
const stepvan_view *views_at(PyObject *object, Py_ssize_t i)
{
	return &((views *)object)->at[i].view;
}

/* Its name; NULL with an exception. It lives as long. */
const char *views_name(PyObject *object, Py_ssize_t i)
{
	return to_text(((views *)object)->at[i].name);
}

static PyObject *numbers(const int64_t *at, int count)
{
	PyObject *tuple = PyTuple_New(count);
	for (int i = 0; tuple != NULL && i < count; i++) {
		PyObject *n = PyLong_FromLongLong(at[i]);
		if (n == NULL || PyTuple_SetItem(tuple, i, n) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* list() -> [(name, address, type, shape, strides, whether it lies in memory of stepvan.empty or share_)] */
static PyObject *list_views(PyObject *self, PyObject *unused)
{
	views *v = (views *)self;
	PyObject *list = PyList_New(v->count);
	for (Py_ssize_t i = 0; list != NULL && i < v->count; i++) {
		const stepvan_view *view = &v->at[i].view;
		PyObject *row = Py_BuildValue("(OKsNNN)", v->at[i].name, (unsigned long long)(uintptr_t)view->data, dtype_name(view->dtype),
			numbers(view->shape, view->rank), numbers(view->strides, view->rank), PyBool_FromLong(view->memory != 0));
		if (row == NULL || PyList_SetItem(list, i, row) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyMethodDef methods[] = {
	{"check", check_views, METH_NOARGS, NULL},
	{"list", list_views, METH_NOARGS, NULL},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_dealloc, views_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc, "Tensors that a plan moves."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "stepvan._core.Views",
	.basicsize = sizeof(views),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int views_ready(PyObject *module)
{
	type = (PyTypeObject *)PyType_FromSpec(&spec);
	return type == NULL ? -1 : PyModule_AddObjectRef(module, "Views", (PyObject *)type);
}
