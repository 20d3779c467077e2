/* A worker's exchanges. */
#include "core.h"

/* One rank, or a list, as a tuple. New reference. */
static PyObject *ranks_list(PyObject *object, const char *what)
{
	if (PyLong_Check(object) || (PyIndex_Check(object) && !PySequence_Check(object)))
		return PyTuple_Pack(1, object);
	PyObject *list = PyUnicode_Check(object) ? NULL : PySequence_Tuple(object);
	if (list == NULL && is_wrong())
		must_be(object, what, -1, "the rank of a server, or a list of ranks");
	return list;
}

/* The ranks of named servers: None, one rank, or a list. For PyMem_Free. */
static int ranks_of(PyObject *object, uint32_t **ranks, uint64_t *count, const char *what)
{
	*ranks = NULL;
	*count = 0;
	if (object == Py_None)
		return 0;
	PyObject *list = ranks_list(object, what);
	if (list == NULL)
		return -1;
	Py_ssize_t n;
	uint64_t *numbers = to_numbers(list, &n, what);
	Py_DECREF(list);
	if (numbers == NULL)
		return -1;
	uint32_t *narrow = (uint32_t *)numbers; /* in place: each number is read before it is overwritten */
	for (Py_ssize_t i = 0; i < n; i++) {
		uint64_t rank = numbers[i];
		if (rank > UINT32_MAX) {
			raise_invalid("%s[%zd] is %llu, which is not a rank", what, i, (unsigned long long)rank);
			PyMem_Free(numbers);
			return -1;
		}
		memcpy(narrow + i, &(uint32_t){(uint32_t)rank}, sizeof(uint32_t));
	}
	*ranks = narrow;
	*count = (uint64_t)n;
	return 0;
}

/* Marks pulls as variable: True for all, or a list of truths, one per pull. */
static int mark_variable(tensors *pulls, PyObject *variable)
{
	if (variable == Py_None || variable == Py_False)
		return 0;
	PyObject *marks = variable == Py_True ? NULL : to_tuple(variable, "variable");
	if (marks == NULL && PyErr_Occurred() != NULL)
		return -1;
	int failed = 0;
	if (marks != NULL && PyTuple_Size(marks) != pulls->count) {
		raise_invalid("variable has %zd marks for %zd pulls: give one per pull, or True for all", PyTuple_Size(marks), pulls->count);
		failed = -1;
	}
	for (Py_ssize_t i = 0; failed == 0 && i < pulls->count; i++) {
		int is = marks != NULL ? PyObject_IsTrue(PyTuple_GetItem(marks, i)) : 1;
		if (is < 0)
			failed = -1;
		else if (is)
			pulls->at[i].flags |= STEPVAN_VARIABLE;
	}
	Py_XDECREF(marks);
	return failed;
}

/* The arguments of push_pull after tensors and keys: args[5..]. */
static int set_options(stepvan_exchange *x, tensors *pulls, arguments args)
{
	uint64_t routing;
	if (to_u64(args[5], &routing, "routing") < 0)
		return -1;
	x->routing = (uint32_t)routing;
	x->pair_with_push = args[7] == Py_True;
	if (args[9] != Py_None && (x->label = to_text(args[9])) == NULL) {
		if (PyErr_Occurred() == NULL)
			must_be(args[9], "label", -1, "text");
		return -1;
	}
	if (mark_variable(pulls, args[8]) < 0 || ranks_of(args[6], (uint32_t **)&x->push_to, &x->push_to_count, "push_to") < 0)
		return -1;
	return ranks_of(x->pair_with_push ? Py_None : args[7], (uint32_t **)&x->pull_to, &x->pull_to_count, "pull_to");
}

/* The keys: in few if they fit, else in a new array for PyMem_Free. */
static uint64_t *keys_of(PyObject *object, uint64_t *few, Py_ssize_t want, const char *name, const char *of)
{
	Py_ssize_t n = PyList_Check(object) ? PyList_Size(object) : -1;
	uint64_t *keys = few;
	if (n >= 0 && n <= FEW) {
		for (Py_ssize_t i = 0; i < n; i++) {
			PyObject *key = PyList_GetItem(object, i); /* NULL when __index__ of an earlier item has shortened the list */
			Py_XINCREF(key);
			int failed = key == NULL ? -1 : to_u64_at(key, &few[i], name, i);
			Py_XDECREF(key);
			if (failed < 0)
				return NULL;
		}
	} else if ((keys = to_numbers(object, &n, name)) == NULL) {
		return NULL;
	}
	if (n == want)
		return keys;
	if (keys != few)
		PyMem_Free(keys);
	raise_invalid("%zd %s and %zd %s: give a key for each tensor", want, of, n, name);
	return NULL;
}

static PyObject *begin(uint64_t node, stepvan_exchange *x, tensors *push, tensors *pull, references *kept, uint64_t opened, arguments args, Py_ssize_t count)
{
	uint64_t few_push[FEW], few_pull[FEW], handle, stream;
	uint64_t *push_keys = NULL, *pull_keys = NULL;
	stepvan_error error;
	PyObject *result = NULL, *owner = NULL;
	if ((push_keys = keys_of(args[2], few_push, push->count, "push_keys", "push tensors")) == NULL)
		goto done;
	if ((pull_keys = keys_of(args[4], few_pull, pull->count, "pull_keys", "pull tensors")) == NULL)
		goto done;
	if (count > 5 && set_options(x, pull, args) < 0)
		goto done;
	x->push = push->at;
	x->push_keys = push_keys;
	x->pushes = (uint64_t)push->count;
	x->pull = pull->at;
	x->pull_keys = pull_keys;
	x->pulls = (uint64_t)pull->count;
	owner = references_owner(kept);
	if (owner == NULL && PyErr_Occurred() != NULL)
		goto done;
	x->owner = (uintptr_t)owner;
	storages_close(opened, push);
	storages_close(opened, pull);
	int on = stream_of(push->at, push->count, &stream);
	if (on == 0)
		on = stream_of(pull->at, pull->count, &stream);
	int32_t code = on < 0 ? 0 : on ? stepvan_push_pull_on(node, stream, x, &handle, &error) : stepvan_push_pull(node, x, &handle, &error);
	if (on < 0 || check_on(node, "push_pull", code, &error) < 0) {
		Py_XDECREF(owner);
		goto done;
	}
	owner_settle(owner); /* the library holds it until stepvan_released */
	result = PyLong_FromUnsignedLongLong(handle);
done:
	if (push_keys != few_push)
		PyMem_Free(push_keys);
	if (pull_keys != few_pull)
		PyMem_Free(pull_keys);
	return result;
}

/*
 * push_pull(node, push, push_keys, pull, pull_keys[, routing, push_to, pull_to, variable, label]) -> handle.
 * pull_to is True for the servers of the pushes. Budget: 1 us for a push and a pull of torch.
 */
PyObject *push_pull(PyObject *self, arguments args, Py_ssize_t count)
{
	uint64_t node;
	if (count != 5 && expect(count, 10, 10, "push_pull") < 0)
		return NULL;
	if (to_u64(args[0], &node, "node") < 0)
		return NULL;
	stepvan_exchange x;
	memset(&x, 0, sizeof(x));
	tensors push, pull;
	pull.at = pull.few;
	references kept;
	references_begin(&kept);
	uint64_t opened = storages_open();
	PyObject *result = NULL;
	if (tensors_of(&push, args[1], "push", 0, &kept) == 0 && tensors_of(&pull, args[3], "pull", 1, &kept) == 0)
		result = begin(node, &x, &push, &pull, &kept, opened, args, count);
	PyMem_Free((void *)x.push_to);
	PyMem_Free((void *)x.pull_to);
	tensors_done(&push);
	tensors_done(&pull);
	references_done(&kept);
	collect_released();
	return result;
}
