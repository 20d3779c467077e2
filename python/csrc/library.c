/* The library itself: version, clock, command line. */
#include "core.h"

/* version() -> "v1.2.3" */
PyObject *library_version(PyObject *self, PyObject *unused)
{
	return library_load("the version of the library") < 0 ? NULL : PyUnicode_FromString(stepvan_version());
}

#ifndef STEPVAN_WHEEL_VERSION
#define STEPVAN_WHEEL_VERSION "0.0.0.dev0"
#endif

/* wheel_version() -> "1.2.3", the version of the package */
PyObject *wheel_version(PyObject *self, PyObject *unused)
{
	return PyUnicode_FromString(STEPVAN_WHEEL_VERSION);
}

/* check_fork() raises ForkedError in a child that was forked after stepvan was used. */
PyObject *check_fork(PyObject *self, PyObject *unused)
{
	if (library_forked() != NULL)
		return raise_code(STEPVAN_FORKED, NULL);
	Py_RETURN_NONE;
}

/* get_nanosecond() -> ns since 1970 */
PyObject *get_nanosecond(PyObject *self, PyObject *unused)
{
	return library_load("get_nanosecond()") < 0 ? NULL : PyLong_FromLongLong(stepvan_get_nanosecond());
}

/* The texts of a tuple, which owns them. The array is for PyMem_Free. */
static const char **texts(PyObject *tuple, Py_ssize_t *count)
{
	*count = PyTuple_Size(tuple);
	if (*count < 0)
		return NULL;
	const char **at = PyMem_Calloc((size_t)*count + 1, sizeof(char *));
	if (at == NULL)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; at != NULL && i < *count; i++) {
		at[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
		if (at[i] == NULL) {
			PyMem_Free(at);
			at = NULL;
		}
	}
	return at;
}

/* main((argument, ...), (command that runs this, ...)) -> exit code */
PyObject *run_command(PyObject *self, arguments args, Py_ssize_t count)
{
	if (expect(count, 2, 2, "main") < 0 || library_load("the command line") < 0)
		return NULL;
	Py_ssize_t argc = 0, selfc = 0;
	const char **argv = texts(args[0], &argc), **selfv = argv != NULL ? texts(args[1], &selfc) : NULL;
	int32_t code = 0;
	if (selfv != NULL) {
		Py_BEGIN_ALLOW_THREADS
		code = stepvan_main((int32_t)argc, argv, (int32_t)selfc, selfv);
		Py_END_ALLOW_THREADS
	}
	PyMem_Free(argv);
	PyMem_Free(selfv);
	return selfv != NULL ? PyLong_FromLong(code) : NULL;
}
