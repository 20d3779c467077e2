/* Requests: the base class of stepvan.Request. */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

static PyTypeObject *type;
static PyObject *request_class, *pull_class, *response_class;

/* set_request(Request, Pull, Response): the classes of what get_batch, Request.pulls and Request.respond return. */
PyObject *set_request(PyObject *self, arguments args, Py_ssize_t count)
{
	if (expect(count, 3, 3, "set_request") < 0)
		return NULL;
	if (!PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], type)) {
		PyErr_SetString(PyExc_TypeError, "the class of requests extends _core.Request");
		return NULL;
	}
	Py_INCREF(args[0]);
	replace(&request_class, args[0]);
	Py_INCREF(args[1]);
	replace(&pull_class, args[1]);
	Py_INCREF(args[2]);
	replace(&response_class, args[2]);
	Py_RETURN_NONE;
}

static int take_pulls(request *r, const stepvan_request *from, const stepvan_batch *batch)
{
	if (from->pulls == 0)
		return 0;
	r->pull = PyMem_Malloc(from->pulls * (sizeof(stepvan_tensor) + sizeof(uint64_t)));
	if (r->pull == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	r->pulls = (Py_ssize_t)from->pulls;
	r->pull_keys = (uint64_t *)(r->pull + from->pulls);
	memcpy(r->pull, batch->pull + from->first_pull, from->pulls * sizeof(stepvan_tensor));
	memcpy(r->pull_keys, batch->pull_keys + from->first_pull, from->pulls * sizeof(uint64_t));
	return 0;
}

static int is_left(const stepvan_tensor *tensor)
{
	return (tensor->flags & STEPVAN_READ_ONLY) != 0;
}

/* Notes the pushes that the worker has left in its own memory. */
static int take_left(request *r, const stepvan_request *from, const stepvan_batch *batch)
{
	const stepvan_tensor *push = batch->push + from->first_push;
	size_t count = 0;
	for (uint32_t i = 0; i < from->pushes; i++)
		count += (size_t)is_left(&push[i]);
	if (count == 0)
		return 0;
	r->left = PyMem_Malloc(count * sizeof(left));
	if (r->left == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	for (uint32_t i = 0; i < from->pushes; i++) {
		if (is_left(&push[i]))
			r->left[r->lefts++] = (left){(Py_ssize_t)i, push[i]};
	}
	return 0;
}

/*
 * New reference. Takes references to the lists and the server. None in tensors stands for a push that is copied later,
 * for framework as.
 */
PyObject *request_new(uint64_t node, PyObject *server, const stepvan_request *from, const stepvan_batch *batch, framework *as, PyObject *tensors, PyObject *keys)
{
	request *r = (request *)PyType_GenericAlloc((PyTypeObject *)(request_class != NULL ? request_class : (PyObject *)type), 0);
	if (r == NULL)
		return NULL;
	r->node = node;
	r->handler = from->handler;
	r->worker = from->worker;
	Py_INCREF(server);
	r->server = server;
	Py_INCREF(tensors);
	r->tensors = tensors;
	Py_INCREF(keys);
	r->keys = keys;
	r->as = as;
	if (take_pulls(r, from, batch) < 0 || take_left(r, from, batch) < 0) {
		Py_DECREF(r);
		return NULL;
	}
	return (PyObject *)r;
}

static int request_traverse(PyObject *self, visitproc visit, void *arg)
{
	request *r = (request *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(r->server);
	Py_VISIT(r->tensors);
	Py_VISIT(r->keys);
	Py_VISIT(r->views);
	return 0;
}

static int request_clear(PyObject *self)
{
	request *r = (request *)self;
	Py_CLEAR(r->server);
	Py_CLEAR(r->tensors);
	Py_CLEAR(r->keys);
	Py_CLEAR(r->views);
	return 0;
}

static void request_dealloc(PyObject *self)
{
	PyTypeObject *of = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	request_clear(self);
	PyMem_Free(((request *)self)->pull);
	PyMem_Free(((request *)self)->left);
	PyObject_GC_Del(self);
	Py_DECREF(of);
}

static PyObject *request_pull(const request *r, framework *as, Py_ssize_t i)
{
	const stepvan_tensor *p = &r->pull[i];
	PyObject *key = PyLong_FromUnsignedLongLong(r->pull_keys[i]), *shape = shape_of(p), *dtype = dtype_object(as, p->dtype);
	PyObject *bytes = PyLong_FromUnsignedLongLong(p->bytes), *pull = NULL;
	if (key != NULL && shape != NULL && dtype != NULL && bytes != NULL)
		pull = PyObject_CallFunctionObjArgs(pull_class, key, shape, dtype, bytes, (p->flags & STEPVAN_VARIABLE) != 0 ? Py_True : Py_False, NULL);
	Py_XDECREF(key);
	Py_XDECREF(shape);
	Py_XDECREF(dtype);
	Py_XDECREF(bytes);
	return pull;
}

static PyObject *request_pulls(PyObject *self, void *unused)
{
	request *r = (request *)self;
	framework *as = preferred();
	PyObject *pulls = as != NULL ? PyList_New(r->pulls) : NULL;
	for (Py_ssize_t i = 0; pulls != NULL && i < r->pulls; i++) {
		PyObject *pull = request_pull(r, as, i);
		if (pull == NULL || PyList_SetItem(pulls, i, pull) < 0)
			Py_CLEAR(pulls);
	}
	return pulls;
}

typedef int32_t (*where)(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor, stepvan_error *error);

/* The view that input and out return: made once. Steals key. */
static PyObject *request_view(request *r, const char *what, PyObject *key, where function, uint64_t i)
{
	if (key == NULL || (r->views == NULL && (r->views = PyDict_New()) == NULL)) {
		Py_XDECREF(key);
		return NULL;
	}
	PyObject *views = r->views; /* another thread may answer, and so drop the views, while a view is made */
	Py_INCREF(views);
	stepvan_tensor tensor;
	stepvan_error error;
	PyObject *view = NULL, *memory = NULL;
	uint64_t kept = 0;
	framework *as = preferred();
	if (as == NULL || check_on(r->node, what, function(r->node, r->handler, i, &tensor, &error), &error) < 0)
		goto done;
	view = PyDict_GetItemWithError(views, key);
	Py_XINCREF(view);
	if (view != NULL || PyErr_Occurred() != NULL)
		goto done;
	if (tensor.device_kind != 0) {
		view = chunk_view(as, &tensor);
		goto made;
	}
	if (tensor.bytes > 0 && check_on(r->node, what, stepvan_keep(r->node, r->handler, tensor.data, &kept, &error), &error) < 0)
		goto done;
	memory = memory_new(tensor.data, tensor.bytes, kept, (tensor.flags & STEPVAN_READ_ONLY) != 0 && as == &numpy, NULL);
	view = memory != NULL ? view_of(as, memory, &tensor) : NULL;
made:
	if (view != NULL && PyDict_SetItem(views, key, view) < 0)
		Py_CLEAR(view);
done:
	Py_XDECREF(memory);
	Py_DECREF(views);
	Py_DECREF(key);
	return view;
}

static PyObject *request_input(PyObject *self, PyObject *index)
{
	uint64_t i;
	if (to_u64(index, &i, "push") < 0)
		return NULL;
	return request_view((request *)self, "input", PyLong_FromLongLong(~(long long)i), stepvan_request_in, i);
}

static PyObject *request_out(PyObject *self, PyObject *index)
{
	uint64_t i;
	if (to_u64(index, &i, "pull") < 0)
		return NULL;
	return request_view((request *)self, "out", PyLong_FromUnsignedLongLong(i), stepvan_request_out, i);
}

/* The memory for the answers to all pulls, as a list. New reference. */
static PyObject *all_out(request *r)
{
	PyObject *list = PyList_New(r->pulls);
	for (Py_ssize_t i = 0; list != NULL && i < r->pulls; i++) {
		PyObject *view = request_view(r, "respond", PyLong_FromSsize_t(i), stepvan_request_out, (uint64_t)i);
		if (view == NULL || PyList_SetItem(list, i, view) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* The argument of respond; None without one. NULL with an exception. Borrowed. */
static PyObject *respond_argument(arguments args, Py_ssize_t count, PyObject *names)
{
	Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
	if (count + named > 1) {
		PyErr_Format(PyExc_TypeError, "Request.respond() takes at most 1 argument (%zd given)", count + named);
		return NULL;
	}
	if (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "tensors") != 0) {
		PyErr_Format(PyExc_TypeError, "Request.respond() got an unexpected keyword argument '%U'", PyTuple_GetItem(names, 0));
		return NULL;
	}
	return count + named == 1 ? args[0] : Py_None;
}

/* The garbage collector takes the server of a request that nothing but other garbage reaches. */
static int has_server(const request *r, const char *what)
{
	stepvan_error error = {.subject = ""};
	if (r->server != NULL)
		return 0;
	PyOS_snprintf(error.message, sizeof(error.message), "%s: the request: the garbage collector has taken its server: keep the request until it is answered", what);
	raise_code(STEPVAN_STALE, &error);
	return -1;
}

/* Drops the views of input and out. */
static PyObject *request_respond(PyObject *self, arguments args, Py_ssize_t count, PyObject *names)
{
	request *r = (request *)self;
	PyObject *tensors = respond_argument(args, count, names);
	if (tensors == NULL || has_server(r, "respond") < 0)
		return NULL;
	PyObject *all = tensors == Py_None ? all_out(r) : NULL;
	if (tensors == Py_None && all == NULL)
		return NULL;
	PyObject *number = answer(r->node, r->handler, all != NULL ? all : tensors, 0), *response = NULL;
	Py_XDECREF(all);
	if (number != NULL) {
		Py_CLEAR(r->views);
		response = PyObject_CallFunctionObjArgs(response_class, r->server, number, NULL);
		Py_DECREF(number);
	}
	return response;
}

static PyObject *request_handler(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLongLong(((request *)self)->handler);
}

static PyObject *given(PyObject *object)
{
	PyObject *result = object != NULL ? object : Py_None;
	Py_INCREF(result);
	return result;
}


/* The result of a call on a push that the worker has left in its own memory. */
static int check_left(const request *r, int32_t code, stepvan_error *error)
{
	if (code == STEPVAN_STALE)
		PyOS_snprintf(error->message, sizeof(error->message),
			"tensors: the request was answered before they were looked at, and what was pushed is in the worker's memory: look at tensors before the respond");
	return check_on(r->node, "tensors", code, error);
}

/*
 * A copy of a push in the worker's memory. A large copy is made without the interpreter lock, and another thread
 * may answer meanwhile. So the memory is held, and the copy is dropped if the worker may have changed the memory
 * during the read.
 */
static PyObject *copy_left(const request *r, const left *l)
{
	uint64_t kept;
	stepvan_error error;
	stepvan_tensor still;
	if (check_left(r, stepvan_keep(r->node, r->handler, l->tensor.data, &kept, &error), &error) < 0)
		return NULL;
	PyObject *copy = copy_of(r->as, &l->tensor);
	stepvan_free(kept, NULL);
	if (copy != NULL && check_left(r, stepvan_request_in(r->node, r->handler, (uint64_t)l->at, &still, &error), &error) < 0)
		Py_CLEAR(copy);
	return copy;
}

/* Replaces each None by a copy: all or, on an error, none. If two threads copy, the first one's copies count. */
static int fill_left(request *r)
{
	Py_ssize_t count = r->lefts;
	PyObject *copies = PyList_New(0);
	for (Py_ssize_t i = 0; copies != NULL && i < count; i++) {
		PyObject *copy = copy_left(r, &r->left[i]);
		if (copy == NULL || PyList_Append(copies, copy) < 0)
			Py_CLEAR(copies);
		Py_XDECREF(copy);
	}
	if (r->lefts == 0) { /* another thread was first, and may have answered since then */
		if (copies == NULL && PyErr_ExceptionMatches(PyExc_Exception))
			PyErr_Clear();
		int failed = PyErr_Occurred() != NULL;
		Py_XDECREF(copies);
		return failed ? -1 : 0;
	}
	if (copies == NULL)
		return -1;
	r->lefts = 0;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *copy = PyList_GetItem(copies, i);
		Py_INCREF(copy);
		PyList_SetItem(r->tensors, r->left[i].at, copy);
	}
	Py_DECREF(copies);
	return 0;
}

static PyObject *request_tensors(PyObject *self, void *unused)
{
	request *r = (request *)self;
	return r->tensors != NULL && r->lefts > 0 && fill_left(r) < 0 ? NULL : given(r->tensors);
}

/* The interpreter reads members of T_OBJECT_EX faster than what a function gets. */
static PyMemberDef members[] = {
	{"worker", T_LONGLONG, offsetof(request, worker), READONLY, "The rank of the worker that asks."},
	{"keys", T_OBJECT_EX, offsetof(request, keys), READONLY, "The keys of the tensors."},
	{"pull_count", T_PYSSIZET, offsetof(request, pulls), READONLY, "How many pulls there are."},
	{0},
};

static PyGetSetDef fields[] = {
	{"handler", request_handler, NULL, "The number for the respond.", NULL},
	{"tensors", request_tensors, NULL, "What was pushed: a list of tensors. What the worker has left in its memory is copied at the first look.", NULL},
	{"pulls", request_pulls, NULL, "What is to be answered: a list of Pull.", NULL},
	{0},
};

static PyMethodDef methods[] = {
	{"input", request_input, METH_O, "input(i): push i to be read where it is."},
	{"out", request_out, METH_O, "out(i): memory for the answer to pull i."},
	{"respond", (PyCFunction)(void (*)(void))request_respond, METH_FASTCALL | METH_KEYWORDS,
	 "respond($self, /, tensors=None)\n--\n\n"
	 "Answers the request; without tensors, with ``out(i)`` for each pull. See ``Server.respond``."},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_dealloc, request_dealloc},
	{Py_tp_traverse, request_traverse},
	{Py_tp_clear, request_clear},
	{Py_tp_getset, fields},
	{Py_tp_members, members},
	{Py_tp_methods, methods},
	{Py_tp_doc, "One worker's request."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "stepvan._core.Request",
	.basicsize = sizeof(request),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int request_ready(PyObject *module)
{
	type = (PyTypeObject *)PyType_FromSpec(&spec);
	return type == NULL ? -1 : PyModule_AddObjectRef(module, "Request", (PyObject *)type);
}
