/* Turns errors of the library into exceptions. */
#include "core.h"

#include <stdarg.h>

/* Exceptions by stepvan_code. */
static PyObject *classes[32];

/* Takes {code: exception class}. */
PyObject *set_errors(PyObject *self, PyObject *table)
{
	for (long code = 0; code < COUNT(classes); code++) {
		PyObject *key = PyLong_FromLong(code);
		if (key == NULL)
			return NULL;
		PyObject *class = PyDict_GetItemWithError(table, key);
		Py_DECREF(key);
		if (class == NULL && PyErr_Occurred())
			return NULL;
		Py_XINCREF(class);
		Py_XDECREF(classes[code]);
		classes[code] = class;
	}
	Py_RETURN_NONE;
}

static PyObject *class_of(int32_t code)
{
	if (code > 0 && code < COUNT(classes) && classes[code] != NULL)
		return classes[code];
	return classes[STEPVAN_INTERNAL] != NULL ? classes[STEPVAN_INTERNAL] : PyExc_RuntimeError;
}

static PyObject *raise_text(int32_t code, PyObject *text, const char *subject)
{
	if (text == NULL)
		return NULL;
	PyObject *class = class_of(code);
	PyObject *exception = PyObject_CallFunctionObjArgs(class, text, NULL);
	Py_DECREF(text);
	if (exception == NULL)
		return NULL;
	PyObject *about = PyUnicode_DecodeUTF8(subject, (Py_ssize_t)strlen(subject), "replace");
	if (about != NULL && PyObject_SetAttrString(exception, "subject", about) == 0)
		PyErr_SetObject(class, exception);
	Py_XDECREF(about);
	Py_DECREF(exception);
	return NULL;
}

/* Sets the exception of code with the message of error, which STEPVAN_FORKED ignores. Returns NULL. */
PyObject *raise_code(int32_t code, const stepvan_error *error)
{
	const char *use = code == STEPVAN_FORKED ? library_forked() : NULL;
	if (use != NULL)
		return raise_text(code, PyUnicode_FromFormat("this process was forked after its parent had used stepvan, first for %s: fork before the first use (an import is none), or start the process with multiprocessing's \"spawn\"", use), "");
	const char *text = error->message;
	return raise_text(code, PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"), error->subject);
}

/* Messages quote so many characters of a program's text, as the library's messages quote bytes. */
enum { LONGEST = 200 };

/*
 * A text of the program for a message, cut when it is long: "aaa... (1000 characters)". Steals text; it may be
 * NULL.
 */
static PyObject *cut(PyObject *text)
{
	Py_ssize_t length = text == NULL ? 0 : PyUnicode_GetLength(text);
	if (length <= LONGEST)
		return text;
	PyObject *beginning = PyUnicode_Substring(text, 0, LONGEST);
	Py_DECREF(text);
	if (beginning == NULL)
		return NULL;
	text = PyUnicode_FromFormat("%U... (%zd characters)", beginning, length);
	Py_DECREF(beginning);
	return text;
}

/*
 * An object of the program as messages quote it: its repr, or with plain its str. An exception that is set stays. New
 * reference; NULL with the exception that the object has raised.
 */
PyObject *quoted(PyObject *object, int plain)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	PyObject *text = cut(plain ? PyObject_Str(object) : PyObject_Repr(object));
	if (text != NULL) {
		PyErr_Restore(type, value, traceback);
		return text;
	}
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
	return NULL;
}

/* Sets the exception of STEPVAN_INVALID. Returns NULL. */
PyObject *raise_invalid(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	PyObject *text = PyUnicode_FromFormatV(format, list);
	va_end(list);
	return raise_text(STEPVAN_INVALID, text, "");
}

/* Sets the exception of STEPVAN_NOT_SUPPORTED. Returns NULL. */
PyObject *raise_not_supported(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	PyObject *text = PyUnicode_FromFormatV(format, list);
	va_end(list);
	return raise_text(STEPVAN_NOT_SUPPORTED, text, "");
}

/* The result of a call of the library: 0, or -1 with the exception set. */
int check(int32_t code, const stepvan_error *error)
{
	if (code == STEPVAN_OK)
		return 0;
	raise_code(code, error);
	return -1;
}

/* Sets the exception of STEPVAN_CLOSED for a call (or NULL) on a closed node. Returns NULL. */
PyObject *raise_closed(const char *what)
{
	return raise_text(STEPVAN_CLOSED, PyUnicode_FromFormat("%s%sthis node was closed", what != NULL ? what : "", what != NULL ? ": " : ""), "");
}

static int gone(uint64_t node)
{
	stepvan_node_info info;
	return stepvan_info(node, &info, NULL) != STEPVAN_OK;
}

/* As check, for a call on a node. If the node was stopped or closed (STEPVAN_CLOSED), the message names the call. */
int check_on(uint64_t node, const char *what, int32_t code, const stepvan_error *error)
{
	if (code == STEPVAN_OK)
		return 0;
	if ((code == STEPVAN_STALE || code == STEPVAN_CLOSED) && gone(node))
		raise_closed(what);
	else if (code == STEPVAN_CLOSED && strncmp(error->message, what, strlen(what)) != 0)
		raise_text(code, PyUnicode_FromFormat("%s: %s", what, error->message), error->subject);
	else
		raise_code(code, error);
	return -1;
}
