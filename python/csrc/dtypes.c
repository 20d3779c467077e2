/* Element types: dtype objects of torch, numpy and ml_dtypes by identity, and other names of types. */
#include "core.h"

static const struct {
	const char *name;
	uint8_t size;
	uint8_t kind; /* of DLPack */
} types[] = {
	[STEPVAN_BOOL] = {"bool", 1, 6},
	[STEPVAN_UINT8] = {"uint8", 1, 1},
	[STEPVAN_INT8] = {"int8", 1, 0},
	[STEPVAN_UINT16] = {"uint16", 2, 1},
	[STEPVAN_INT16] = {"int16", 2, 0},
	[STEPVAN_UINT32] = {"uint32", 4, 1},
	[STEPVAN_INT32] = {"int32", 4, 0},
	[STEPVAN_UINT64] = {"uint64", 8, 1},
	[STEPVAN_INT64] = {"int64", 8, 0},
	[STEPVAN_FLOAT16] = {"float16", 2, 2},
	[STEPVAN_BFLOAT16] = {"bfloat16", 2, 4},
	[STEPVAN_FLOAT32] = {"float32", 4, 2},
	[STEPVAN_FLOAT64] = {"float64", 8, 2},
	[STEPVAN_COMPLEX32] = {"complex32", 4, 5},
	[STEPVAN_COMPLEX64] = {"complex64", 8, 5},
	[STEPVAN_COMPLEX128] = {"complex128", 16, 5},
	[STEPVAN_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1, 10},
	[STEPVAN_FLOAT8_E5M2] = {"float8_e5m2", 1, 12},
	[STEPVAN_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1, 11},
	[STEPVAN_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1, 13},
	[STEPVAN_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1, 14},
	[STEPVAN_FLOAT4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1, 17},
};

/* Known dtype objects. They are few, and the first ones used are found first. */
static struct {
	PyObject *object; /* held, so no other object gets its address */
	int code;
} known[256];
static Py_ssize_t count;

/* The code of a dtype object, 0 when it is unknown. Sets no exception. */
int dtype_code(PyObject *dtype)
{
	for (Py_ssize_t i = 0; i < count; i++) {
		if (known[i].object == dtype)
			return known[i].code;
	}
	return 0;
}

/* Adds a dtype object to the table. When the table is full, dtype_equal looks types up each time. */
int dtype_learn(PyObject *dtype, int code)
{
	if (count == COUNT(known) || dtype_code(dtype) != 0)
		return 0;
	Py_INCREF(dtype);
	known[count].object = dtype;
	known[count++].code = code;
	return 0;
}

/* The code of a dtype that equals a known one (numpy has several objects for one type), else 0. */
int dtype_equal(PyObject *dtype)
{
	for (Py_ssize_t i = 0; i < count; i++) {
		if (Py_TYPE(known[i].object) != Py_TYPE(dtype))
			continue;
		int equal = PyObject_RichCompareBool(known[i].object, dtype, Py_EQ);
		if (equal < 0)
			PyErr_Clear();
		if (equal <= 0)
			continue;
		int code = known[i].code;
		dtype_learn(dtype, code);
		return code;
	}
	return 0;
}

/* The bytes of an element; 0 when there is no such type. */
uint64_t dtype_size(int code)
{
	return code > 0 && code < COUNT(types) ? types[code].size : 0;
}

/* The name of a type in torch and numpy. */
const char *dtype_name(int code)
{
	return code > 0 && code < COUNT(types) ? types[code].name : "?";
}

/* dtype_bytes(code) -> bytes of an element */
PyObject *dtype_bytes(PyObject *self, PyObject *code)
{
	uint64_t number;
	if (to_u64(code, &number, "dtype") < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(number < CODES ? dtype_size((int)number) : 0);
}

/* dtype_names() -> {name: code} */
PyObject *dtype_names(PyObject *self, PyObject *unused)
{
	PyObject *names = PyDict_New();
	for (int code = 1; names != NULL && code < COUNT(types); code++) {
		PyObject *number = PyLong_FromLong(code);
		if (number == NULL || PyDict_SetItemString(names, types[code].name, number) < 0)
			Py_CLEAR(names);
		Py_XDECREF(number);
	}
	return names;
}

static int of_kind(char kind, Py_ssize_t size)
{
	static const struct {
		char kind;
		uint8_t size, code;
	} kinds[] = {
		{'?', 1, STEPVAN_BOOL},
		{'u', 1, STEPVAN_UINT8}, {'u', 2, STEPVAN_UINT16}, {'u', 4, STEPVAN_UINT32}, {'u', 8, STEPVAN_UINT64},
		{'i', 1, STEPVAN_INT8}, {'i', 2, STEPVAN_INT16}, {'i', 4, STEPVAN_INT32}, {'i', 8, STEPVAN_INT64},
		{'f', 2, STEPVAN_FLOAT16}, {'f', 4, STEPVAN_FLOAT32}, {'f', 8, STEPVAN_FLOAT64},
		{'c', 4, STEPVAN_COMPLEX32}, {'c', 8, STEPVAN_COMPLEX64}, {'c', 16, STEPVAN_COMPLEX128},
	};
	for (Py_ssize_t i = 0; i < COUNT(kinds); i++) {
		if (kinds[i].kind == kind && kinds[i].size == size)
			return kinds[i].code;
	}
	return 0;
}

/* The code of a format of the module struct with items of size bytes, in this machine's order; else 0. */
int dtype_of_format(const char *format, Py_ssize_t size)
{
	if (format == NULL)
		return size == 1 ? STEPVAN_UINT8 : 0;
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	if (*format == 'Z')
		return format[1] != '\0' && format[2] == '\0' && strchr("efd", format[1]) != NULL ? of_kind('c', size) : 0;
	if (*format == '\0' || format[1] != '\0')
		return 0;
	if (*format == '?')
		return of_kind('?', size);
	if (strchr("cBHILQN", *format) != NULL)
		return of_kind('u', size);
	if (strchr("bhilqn", *format) != NULL)
		return of_kind('i', size);
	return strchr("efd", *format) != NULL ? of_kind('f', size) : 0;
}

/* The DLDataType of a type. */
void dtype_to_dlpack(int code, uint8_t *kind, uint8_t *bits, uint16_t *lanes)
{
	int packed = code == STEPVAN_FLOAT4_E2M1FN_X2;
	*kind = types[code].kind;
	*lanes = packed ? 2 : 1;
	*bits = (uint8_t)(types[code].size * 8 / *lanes);
}

/* The code of a DLDataType, or 0. Budget: 20 ns. */
int dtype_of_dlpack(int kind, int bits, int lanes)
{
	for (int code = 1; code < COUNT(types); code++) {
		if (types[code].kind == kind && types[code].size * 8 == bits * lanes && lanes == (code == STEPVAN_FLOAT4_E2M1FN_X2 ? 2 : 1))
			return code;
	}
	return 0;
}
