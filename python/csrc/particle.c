/*
 * Particles: loops, calls, futures and values. A value is bytes and a list of tensors of torch. A tensor that the
 * library gives shows its memory, and holds the value, which is released with the last such tensor.
 */
#include "core.h"

/* The most tensors of a value. */
#define MOST_TENSORS 1024

/* Above so many bytes of tensors, a copy is made without the interpreter lock. */
#define LARGE (64 * 1024)

/* A value of Python, for the library. giving_done must follow in any case. */
typedef struct giving {
	stepvan_particle_value value;
	stepvan_view few[FEW], *views;
	references kept;
	uint64_t bytes; /* of the tensors */
} giving;

/* Adds a tensor. */
static int give_tensor(giving *g, PyObject *object, Py_ssize_t index)
{
	stepvan_view *view = &g->views[index];
	operand as = {"tensors", index, 0, view->strides};
	PyObject *holder;
	if (object == NULL || strided_of(object, &as, view, &holder) < 0)
		return -1;
	uint64_t bytes = dtype_size(view->dtype);
	for (int i = 0; i < view->rank; i++)
		bytes *= (uint64_t)view->shape[i];
	g->bytes += bytes;
	g->value.count++;
	return references_add(&g->kept, holder);
}

/* Reads (bytes, tensors, flags). */
static int giving_of(giving *g, PyObject *data, PyObject *tensors, PyObject *flags)
{
	char *bytes;
	Py_ssize_t size;
	uint64_t number;
	memset(&g->value, 0, sizeof g->value);
	g->views = g->few;
	g->bytes = 0;
	references_begin(&g->kept);
	if (!PyBytes_Check(data))
		return must_be(data, "data", -1, "bytes");
	if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0 || to_u64(flags, &number, "flags") < 0)
		return -1;
	g->value.data = bytes;
	g->value.bytes = (uint64_t)size;
	g->value.flags = (uint32_t)number;
	if (!PyList_Check(tensors))
		return must_be(tensors, "tensors", -1, "a list");
	Py_ssize_t n = PyList_Size(tensors);
	if (n > MOST_TENSORS) {
		raise_invalid("value: it has %zd tensors (want at most %d): send fewer at once", n, MOST_TENSORS);
		return -1;
	}
	if (n > FEW && (g->views = PyMem_Malloc((size_t)n * sizeof *g->views)) == NULL) {
		g->views = g->few;
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyList_GetItem(tensors, i);
		Py_XINCREF(item);
		int failed = give_tensor(g, item, i);
		Py_XDECREF(item);
		if (failed < 0)
			return -1;
	}
	g->value.tensors = g->views;
	return 0;
}

static void giving_done(giving *g)
{
	references_done(&g->kept);
	if (g->views != g->few)
		PyMem_Free(g->views);
}

/* A value of the library lives in a capsule, whose end releases it. */
static const char capsule_name[] = "stepvan particle value";

static void capsule_end(PyObject *capsule)
{
	uint64_t *number = PyCapsule_GetPointer(capsule, capsule_name);
	stepvan_particle_release(*number, NULL);
	PyMem_Free(number);
}

/* New reference. Releases the value when it fails. */
static PyObject *capsule_of(uint64_t number)
{
	uint64_t *at = PyMem_Malloc(sizeof *at);
	PyObject *capsule = NULL;
	if (at == NULL) {
		PyErr_NoMemory();
	} else {
		*at = number;
		capsule = PyCapsule_New(at, capsule_name, capsule_end);
	}
	if (capsule == NULL) {
		PyMem_Free(at);
		stepvan_particle_release(number, NULL);
	}
	return capsule;
}

/* A view as a tensor that holds the capsule. New reference. */
static PyObject *tensor_of_view(const stepvan_view *view, PyObject *capsule)
{
	stepvan_tensor tensor = {.data = view->data, .dtype = view->dtype, .rank = view->rank};
	memcpy(tensor.shape, view->shape, view->rank * sizeof(int64_t));
	if (!count_bytes(&tensor)) {
		PyErr_SetString(PyExc_OverflowError, "a tensor of a value is larger than any memory");
		return NULL;
	}
	int packed = is_packed(&tensor, view->strides);
	stepvan_tensor flat = tensor;
	if (!packed) { /* all from the first to the last element, and a view of that */
		flat.rank = 1;
		flat.shape[0] = 1;
		for (int i = 0; i < tensor.rank; i++)
			flat.shape[0] += (tensor.shape[i] - 1) * view->strides[i];
		count_bytes(&flat);
	}
	PyObject *m = memory_new(flat.data, flat.bytes, 0, 0, capsule);
	PyObject *made = m != NULL ? view_of(&torch, m, &flat) : NULL;
	Py_XDECREF(m);
	if (packed || made == NULL)
		return made;
	PyObject *shape = shape_of(&tensor), *strides = PyTuple_New(tensor.rank), *shown = NULL;
	for (int i = 0; strides != NULL && i < tensor.rank; i++) {
		PyObject *n = PyLong_FromLongLong(view->strides[i]);
		if (n == NULL || PyTuple_SetItem(strides, i, n) < 0)
			Py_CLEAR(strides);
	}
	if (shape != NULL && strides != NULL)
		shown = PyObject_CallMethod(made, "as_strided", "OO", shape, strides);
	Py_XDECREF(shape);
	Py_XDECREF(strides);
	Py_DECREF(made);
	return shown;
}

/* (bytes, [tensors], flags) of a value of the library, which it takes over. New reference. */
static PyObject *taken(const stepvan_particle_value *value)
{
	PyObject *capsule = NULL;
	if (value->number != 0 && (capsule = capsule_of(value->number)) == NULL)
		return NULL;
	PyObject *data = PyBytes_FromStringAndSize(value->data, (Py_ssize_t)value->bytes), *list = PyList_New((Py_ssize_t)value->count), *all = NULL;
	for (uint64_t i = 0; list != NULL && i < value->count; i++) {
		PyObject *tensor = tensor_of_view(&value->tensors[i], capsule);
		if (tensor == NULL || PyList_SetItem(list, (Py_ssize_t)i, tensor) < 0)
			Py_CLEAR(list);
	}
	if (data != NULL && list != NULL)
		all = Py_BuildValue("(OOI)", data, list, (unsigned int)value->flags);
	Py_XDECREF(data);
	Py_XDECREF(list);
	Py_XDECREF(capsule);
	return all;
}

/* Finds torch, since all tensors become its own. */
static int with_torch(void)
{
	if (torch.type != NULL || (discover(0) == 0 && torch.type != NULL))
		return 0;
	if (PyErr_Occurred() == NULL)
		PyErr_SetString(PyExc_ImportError, "particles need torch: import it before");
	return -1;
}

static int to_loop(arguments args, Py_ssize_t count, Py_ssize_t want, const char *name, uint64_t *loop)
{
	return expect(count, want, want, name) < 0 || to_u64(args[0], loop, "loop") < 0 ? -1 : 0;
}

static int to_device(PyObject *object, uint32_t *device, const char *what)
{
	uint64_t number;
	if (to_u64(object, &number, what) < 0)
		return -1;
	if (number > UINT32_MAX)
		return must_be(object, what, -1, "a smaller number");
	*device = (uint32_t)number;
	return 0;
}

/* The name of a message, of at most 128 bytes. */
static const char *to_message(PyObject *object)
{
	const char *text = to_text(object);
	if (text == NULL && PyErr_Occurred() == NULL)
		must_be(object, "msg", -1, "text without a 0 character");
	return text;
}

/* particle_open(node, devices, flags, driver, ranks or None, key or None) -> loop */
PyObject *particle_open(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node, flags, loop;
	stepvan_particle_options o = {0};
	stepvan_error error;
	uint32_t *ranks = NULL;
	char *key;
	Py_ssize_t n;
	if (expect(count, 6, 6, "particle_open") < 0 || with_torch() < 0 || to_u64(args[0], &node, "node") < 0 || to_device(args[1], &o.devices, "devices") < 0 ||
	    to_u64(args[2], &flags, "flags") < 0 || to_rank(args[3], &o.driver, "driver", -1) < 0)
		return NULL;
	o.flags = (uint32_t)flags;
	if (args[5] != Py_None) {
		if (!PyBytes_Check(args[5])) {
			must_be(args[5], "key", -1, "bytes");
			return NULL;
		}
		if (PyBytes_AsStringAndSize(args[5], &key, &n) < 0)
			return NULL;
		o.key = key;
		o.key_bytes = (uint64_t)n;
	}
	if (args[4] != Py_None) {
		PyObject *tuple = to_tuple(args[4], "ranks");
		if (tuple == NULL)
			return NULL;
		n = PyTuple_Size(tuple);
		ranks = PyMem_Calloc((size_t)n + 1, sizeof *ranks);
		int failed = ranks == NULL;
		if (failed)
			PyErr_NoMemory();
		for (Py_ssize_t i = 0; !failed && i < n; i++)
			failed = to_rank(PyTuple_GetItem(tuple, i), &ranks[i], "ranks", i) < 0;
		Py_DECREF(tuple);
		if (failed) {
			PyMem_Free(ranks);
			return NULL;
		}
		o.ranks = ranks;
		o.count = (uint64_t)n;
	}
	int32_t code = stepvan_particle_open(node, &o, &loop, &error);
	PyMem_Free(ranks);
	return check_on(node, "particles", code, &error) < 0 ? NULL : PyLong_FromUnsignedLongLong(loop);
}

static int32_t close_loop(void *call, int64_t slice, stepvan_error *error)
{
	return stepvan_particle_close(*(uint64_t *)call, slice, error);
}

/* particle_close(loop, timeout) */
PyObject *particle_close(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop;
	int64_t limit;
	if (to_loop(args, count, 2, "particle_close", &loop) < 0 || to_limit(args[1], &limit) < 0 || wait_for(close_loop, &loop, limit) < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* particle_create(loop, rank, device) -> (particle, future) */
PyObject *particle_create(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, particle, future;
	uint32_t rank, device;
	stepvan_error error;
	if (to_loop(args, count, 3, "particle_create", &loop) < 0 || to_rank(args[1], &rank, "rank", -1) < 0 || to_device(args[2], &device, "device") < 0 ||
	    check(stepvan_particle_create(loop, rank, device, &particle, &future, &error), &error) < 0)
		return NULL;
	return Py_BuildValue("(KK)", (unsigned long long)particle, (unsigned long long)future);
}

/* particle_list(loop) -> [(particle, rank, device)] */
PyObject *particle_list(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, n = 0, room = 64;
	stepvan_particle_place *places = NULL;
	stepvan_error error;
	if (to_loop(args, count, 1, "particle_list", &loop) < 0)
		return NULL;
	for (;;) {
		PyMem_Free(places);
		places = PyMem_Malloc(room * sizeof *places);
		if (places == NULL)
			return PyErr_NoMemory();
		int32_t code = stepvan_particle_list(loop, places, room, &n, &error);
		if (code != STEPVAN_TOO_SMALL && check(code, &error) < 0) {
			PyMem_Free(places);
			return NULL;
		}
		if (n <= room)
			break;
		room = n;
	}
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (uint64_t i = 0; list != NULL && i < n; i++) {
		PyObject *row = Py_BuildValue("(KII)", (unsigned long long)places[i].particle, (unsigned int)places[i].rank, (unsigned int)places[i].device);
		if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) < 0)
			Py_CLEAR(list);
	}
	PyMem_Free(places);
	return list;
}

/* particle_hook(loop, particle, name) */
PyObject *particle_hook(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, particle;
	stepvan_error error;
	if (to_loop(args, count, 3, "particle_hook", &loop) < 0 || to_u64(args[1], &particle, "pid") < 0)
		return NULL;
	const char *name = to_message(args[2]);
	if (name == NULL || check(stepvan_particle_hook(loop, particle, name, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* particle_send(loop, call or 0, sender or -1, particle, name, data, tensors, flags) -> future */
PyObject *particle_send(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, call, particle, future;
	int64_t from;
	stepvan_error error;
	giving g;
	if (to_loop(args, count, 8, "particle_send", &loop) < 0 || to_u64(args[1], &call, "call") < 0 || to_i64(args[2], &from, "from") < 0 ||
	    to_u64(args[3], &particle, "pid") < 0)
		return NULL;
	const char *name = to_message(args[4]);
	if (name == NULL)
		return NULL;
	PyObject *result = NULL;
	if (giving_of(&g, args[5], args[6], args[7]) == 0) {
		int32_t code;
		if (g.bytes > LARGE) {
			Py_BEGIN_ALLOW_THREADS
			code = stepvan_particle_send(loop, call, from, particle, name, &g.value, 0, &future, &error);
			Py_END_ALLOW_THREADS
		} else {
			code = stepvan_particle_send(loop, call, from, particle, name, &g.value, 0, &future, &error);
		}
		if (check(code, &error) == 0)
			result = PyLong_FromUnsignedLongLong(future);
	}
	giving_done(&g);
	return result;
}

/* particle_get(loop, call or 0, sender or -1, particle) -> future */
PyObject *particle_get(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, call, particle, future;
	int64_t from;
	stepvan_error error;
	if (to_loop(args, count, 4, "particle_get", &loop) < 0 || to_u64(args[1], &call, "call") < 0 || to_i64(args[2], &from, "from") < 0 ||
	    to_u64(args[3], &particle, "pid") < 0 || check(stepvan_particle_get(loop, call, from, particle, &future, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(future);
}

typedef struct waiting {
	uint64_t loop, call, *futures;
	Py_ssize_t count;
} waiting;

static int32_t await_futures(void *call, int64_t slice, stepvan_error *error)
{
	const waiting *w = call;
	return stepvan_particle_wait(w->loop, w->call, w->futures, (uint64_t)w->count, slice, error);
}

/* particle_wait(loop, call or 0, futures, timeout) */
PyObject *particle_wait(PyObject *self, arguments args, Py_ssize_t count)
{
	waiting w;
	int64_t limit;
	if (to_loop(args, count, 4, "particle_wait", &w.loop) < 0 || to_u64(args[1], &w.call, "call") < 0 || to_limit(args[3], &limit) < 0)
		return NULL;
	w.futures = to_numbers(args[2], &w.count, "futures");
	if (w.futures == NULL)
		return NULL;
	int failed = wait_for(await_futures, &w, limit);
	PyMem_Free(w.futures);
	if (failed < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* particle_is_done(loop, future) -> bool */
PyObject *particle_is_done(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, future;
	int32_t done;
	stepvan_error error;
	if (to_loop(args, count, 2, "particle_is_done", &loop) < 0 || to_u64(args[1], &future, "future") < 0 ||
	    check(stepvan_particle_is_done(loop, future, &done, &error), &error) < 0)
		return NULL;
	return PyBool_FromLong(done);
}

/* particle_notify(loop, future, queue, token) */
PyObject *particle_notify(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, future, queue, token;
	stepvan_error error;
	if (to_loop(args, count, 4, "particle_notify", &loop) < 0 || to_u64(args[1], &future, "future") < 0 || to_u64(args[2], &queue, "queue") < 0 ||
	    to_u64(args[3], &token, "token") < 0 || check(stepvan_particle_notify(loop, future, queue, token, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* particle_result(loop, future) -> (bytes, [tensors], flags) */
PyObject *particle_result(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, future;
	stepvan_particle_value value = {0};
	stepvan_error error;
	if (to_loop(args, count, 2, "particle_result", &loop) < 0 || to_u64(args[1], &future, "future") < 0 ||
	    check(stepvan_particle_result(loop, future, &value, &error), &error) < 0)
		return NULL;
	return taken(&value);
}

/* particle_failure(loop, future) -> text, which is empty without an error */
PyObject *particle_failure(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, future, bytes = 0;
	stepvan_error error;
	if (to_loop(args, count, 2, "particle_failure", &loop) < 0 || to_u64(args[1], &future, "future") < 0)
		return NULL;
	int32_t code = stepvan_particle_failure(loop, future, NULL, 0, &bytes, &error);
	if (code != STEPVAN_TOO_SMALL)
		return check(code, &error) < 0 ? NULL : PyUnicode_FromString("");
	char *text = PyMem_Malloc(bytes);
	if (text == NULL)
		return PyErr_NoMemory();
	PyObject *made = NULL;
	if (check(stepvan_particle_failure(loop, future, text, bytes, &bytes, &error), &error) == 0)
		made = PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace");
	PyMem_Free(text);
	return made;
}

/* particle_forget(loop, future) */
PyObject *particle_forget(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, future;
	stepvan_error error;
	if (to_loop(args, count, 2, "particle_forget", &loop) < 0 || to_u64(args[1], &future, "future") < 0 ||
	    check(stepvan_particle_forget(loop, future, &error), &error) < 0)
		return NULL;
	Py_RETURN_NONE;
}

typedef struct nexting {
	uint64_t loop;
	uint32_t device;
	stepvan_particle_call call;
} nexting;

static int32_t next_call(void *call, int64_t slice, stepvan_error *error)
{
	nexting *n = call;
	return stepvan_particle_next(n->loop, n->device, slice, &n->call, error);
}

/* particle_next(loop, device, timeout) -> (call, particle, sender, kind, idle, name, (bytes, [tensors], flags)) */
PyObject *particle_next(PyObject *self, arguments args, Py_ssize_t count)
{
	nexting n = {0};
	int64_t limit;
	typedef unsigned long long ull;
	if (to_loop(args, count, 3, "particle_next", &n.loop) < 0 || to_device(args[1], &n.device, "device") < 0 || to_limit(args[2], &limit) < 0)
		return NULL;
	collect_released();
	if (wait_for(next_call, &n, limit) < 0)
		return NULL;
	PyObject *value = taken(&n.call.value), *made = NULL;
	if (value != NULL) {
		made = Py_BuildValue("(KKLIIsO)", (ull)n.call.call, (ull)n.call.particle, (long long)n.call.from, (unsigned int)n.call.kind,
			(unsigned int)n.call.idle, n.call.name, value);
		Py_DECREF(value);
	}
	if (made == NULL) /* the caller does not know the call, so nobody else would end it */
		stepvan_particle_done(n.loop, n.call.call, NULL, "the arguments cannot be made into objects of Python", 0, NULL);
	return made;
}

/* Ends a call whose end cannot be told as the program wants it. Its caller gets the exception, which stays set. */
static void done_refused(uint64_t loop, uint64_t call)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	PyObject *text = value != NULL ? quoted(value, 1) : NULL;
	const char *failure = text != NULL ? to_text(text) : NULL;
	PyErr_Clear();
	stepvan_particle_done(loop, call, NULL, failure != NULL ? failure : "the result of the function cannot be sent", 0, NULL);
	Py_XDECREF(text);
	PyErr_Restore(type, value, traceback);
}

/* particle_done(loop, call, data, tensors, flags, failure or None). The call ends also where it raises. */
PyObject *particle_done(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, call;
	stepvan_error error;
	giving g;
	if (to_loop(args, count, 6, "particle_done", &loop) < 0 || to_u64(args[1], &call, "call") < 0)
		return NULL;
	if (args[5] != Py_None) {
		const char *failure = to_text(args[5]);
		if (failure == NULL) {
			if (PyErr_Occurred() == NULL)
				must_be(args[5], "failure", -1, "text without a 0 character");
			done_refused(loop, call);
			return NULL;
		}
		if (check(stepvan_particle_done(loop, call, NULL, failure, 0, &error), &error) < 0)
			return NULL;
		Py_RETURN_NONE;
	}
	int failed = giving_of(&g, args[2], args[3], args[4]);
	if (failed == 0) {
		int32_t code;
		Py_BEGIN_ALLOW_THREADS
		code = stepvan_particle_done(loop, call, &g.value, NULL, 0, &error);
		Py_END_ALLOW_THREADS
		failed = check(code, &error);
	} else {
		done_refused(loop, call);
	}
	giving_done(&g);
	if (failed < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* particle_share(loop, particle, data or None, tensors): gives memory of which others get views; None ends it. */
PyObject *particle_share(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, particle;
	stepvan_error error;
	giving g;
	if (to_loop(args, count, 4, "particle_share", &loop) < 0 || to_u64(args[1], &particle, "pid") < 0)
		return NULL;
	if (args[2] == Py_None) {
		if (check(stepvan_particle_share(loop, particle, NULL, 0, &error), &error) < 0)
			return NULL;
		collect_released();
		Py_RETURN_NONE;
	}
	PyObject *flags = PyLong_FromLong(0), *owner = NULL;
	int failed = flags == NULL ? -1 : giving_of(&g, args[2], args[3], flags);
	if (flags != NULL) {
		if (failed == 0 && g.kept.count > 0 && (owner = references_owner(&g.kept)) == NULL)
			failed = -1;
		if (failed == 0)
			failed = check(stepvan_particle_share(loop, particle, &g.value, (uintptr_t)owner, &error), &error);
		if (failed < 0)
			Py_XDECREF(owner);
		else
			owner_settle(owner); /* the library holds it until stepvan_released */
		giving_done(&g);
	}
	Py_XDECREF(flags);
	if (failed < 0)
		return NULL;
	collect_released();
	Py_RETURN_NONE;
}

/* particle_views(loop, particle) -> how many views of what was shared last are out */
PyObject *particle_views(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t loop, particle, views;
	stepvan_error error;
	if (to_loop(args, count, 2, "particle_views", &loop) < 0 || to_u64(args[1], &particle, "pid") < 0 ||
	    check(stepvan_particle_views(loop, particle, &views, &error), &error) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(views);
}
