/*
 * torch and numpy. This code neither imports nor links them: stepvan/_frameworks.py finds which are loaded, and calls
 * use_torch and use_numpy.
 */
#include "core.h"

framework torch, numpy;

static PyObject *discoverer, *torch_name;

/* set_discover(function): called as function(everything) to look for frameworks. */
PyObject *set_discover(PyObject *self, PyObject *function)
{
	if (torch_name == NULL && (torch_name = PyUnicode_InternFromString("torch")) == NULL)
		return NULL;
	Py_INCREF(function);
	replace(&discoverer, function);
	Py_RETURN_NONE;
}

/* Finds which frameworks are loaded; with everything it also imports numpy and ml_dtypes. */
int discover(int everything)
{
	if (discoverer == NULL)
		return 0;
	PyObject *result = PyObject_CallFunctionObjArgs(discoverer, everything ? Py_True : Py_False, NULL);
	Py_XDECREF(result);
	return result == NULL ? -1 : 0;
}

/* The framework of results: torch where it is loaded, else numpy. NULL with an exception without either. */
framework *preferred(void)
{
	if (torch.type == NULL && torch_name != NULL) {
		PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), torch_name);
		if (module == NULL && PyErr_Occurred())
			return NULL;
		if (module != NULL && discover(0) < 0)
			return NULL;
	}
	if (torch.type != NULL)
		return &torch;
	if (numpy.type == NULL && discover(1) < 0)
		return NULL;
	if (numpy.type != NULL)
		return &numpy;
	PyErr_SetString(PyExc_ImportError, "tensors are given as those of torch or numpy: import torch, or install numpy");
	return NULL;
}

static void set(PyObject **place, PyObject *object)
{
	Py_INCREF(object);
	replace(place, object);
}

/* Keyword arguments of the functions that make tensors: one dict per dtype, used again and again. */
static PyObject *keywords(PyObject *dtype, const char *extra, PyObject *value)
{
	PyObject *with = Py_BuildValue("{s:O}", "dtype", dtype);
	if (with != NULL && extra != NULL && PyDict_SetItemString(with, extra, value) < 0)
		Py_CLEAR(with);
	return with;
}

/* Reads dtypes, {code: dtype}, into the framework. */
static int set_dtypes(framework *of, PyObject *dtypes, const char *extra, PyObject *value)
{
	PyObject *key, *dtype;
	Py_ssize_t at = 0;
	while (PyDict_Next(dtypes, &at, &key, &dtype)) {
		long code = PyLong_AsLong(key);
		if (code <= 0 || code >= CODES)
			return PyErr_Occurred() != NULL ? -1 : 0;
		if (dtype_learn(dtype, (int)code) < 0)
			return -1;
		PyObject *make = keywords(dtype, extra, value), *wrap = keywords(dtype, NULL, NULL);
		replace(&of->make_with[code], make);
		replace(&of->wrap_with[code], wrap);
		if (make == NULL || wrap == NULL)
			return -1;
		set(&of->dtype[code], dtype);
	}
	return 0;
}

/* Finds the class of torch's storages, and whether their objects live as long as the memory. */
static void look_at_storages(PyObject *type)
{
	PyObject *size = Py_BuildValue("(i)", 1), *tensor = size != NULL ? PyObject_Call(type, size, NULL) : NULL;
	PyObject *storage = tensor != NULL && torch.storage != NULL ? PyObject_CallMethodObjArgs(tensor, torch.storage, NULL) : NULL;
	PyObject *reference = storage != NULL ? PyWeakref_NewRef(storage, NULL) : NULL;
	if (storage != NULL)
		set(&torch.storages, (PyObject *)Py_TYPE(storage));
	Py_XDECREF(storage);
	PyObject *same = reference != NULL ? PyObject_CallFunctionObjArgs(reference, NULL) : NULL;
	torch.lasting = same != NULL && same != Py_None;
	Py_XDECREF(same);
	Py_XDECREF(reference);
	Py_XDECREF(tensor);
	Py_XDECREF(size);
	PyErr_Clear();
}

/* use_torch(Tensor, empty, frombuffer, name of the storage method or None, {code: dtype}) */
PyObject *use_torch(PyObject *self, arguments args, Py_ssize_t count)
{
	if (expect(count, 5, 5, "use_torch") < 0)
		return NULL;
	PyObject *cpu = PyUnicode_FromString("cpu");
	int failed = cpu == NULL || set_dtypes(&torch, args[4], "device", cpu) < 0;
	Py_XDECREF(cpu);
	if (failed)
		return NULL;
	if (args[3] != Py_None)
		set(&torch.storage, args[3]);
	look_at_storages(args[0]);
	torch.exchange = dlpack_exchange(args[0]);
	set(&torch.make, args[1]);
	set(&torch.wrap, args[2]);
	set(&torch.type, args[0]);
	Py_RETURN_NONE;
}

/*
 * use_numpy(ndarray, empty, {code: dtype}, numpy's functions in C, or None) -> whether arrays are read without numpy.
 * Called again when ml_dtypes has been loaded.
 */
PyObject *use_numpy(PyObject *self, arguments args, Py_ssize_t count)
{
	if (expect(count, 4, 4, "use_numpy") < 0 || set_dtypes(&numpy, args[2], NULL, NULL) < 0)
		return NULL;
	numpy.known = numpy_is_known(args[0], args[3]);
	set(&numpy.make, args[1]);
	set(&numpy.wrap, args[0]);
	set(&numpy.type, args[0]);
	return PyBool_FromLong(numpy.known);
}
