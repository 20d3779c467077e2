/*
 * Storages: memory that a program has allocated as a whole, such as that of a tensor and of its views. Where a node
 * registers memory by itself (stepvan_registers), operations give each storage as a number of stepvan_wrap, and the
 * library counts them.
 *
 * The number belongs to the storage and not to its address. The entry of a storage has a weak reference to the object
 * that has the memory. Each use asks whether that object lives, and whether its memory is where it was. The number ends
 * before the memory goes: when the object dies, or when something else has its address. Storages of torch before 2.1
 * tell nobody of their death. So one of them is asked at each operation.
 */
#include "core.h"

#include "names.h"

/* Smaller tensors travel with the head of their message. They get no entry of their own. */
#define LEAST 4096

/* The most entries. Further storages are not registered. */
#define MOST 65536

/* What the reference of an entry refers to. */
enum kind {
	ARRAY,   /* an array of numpy */
	STORAGE, /* a storage of torch, whose object lives as long as the memory */
	POINTER, /* the same before torch 2.1: the number of a weak pointer of torch */
	OBJECT,  /* another object with memory: it is known only by itself */
};

typedef struct storage {
	enum kind kind;
	uintptr_t start;
	uint64_t bytes;
	uint64_t number;
	PyObject *reference;
	PyObject *capsule; /* of on_death, which may run once more when the entry has ended */
} storage;

int storages_wanted;

/* How many entries have ended. */
static uint64_t ended;

/* In the order of their addresses. They do not overlap. */
static storage **all;
static Py_ssize_t count, capacity;
static Py_ssize_t pointers; /* entries of kind POINTER */

/* The index of the first entry that starts after the address. */
static Py_ssize_t behind(uintptr_t address)
{
	Py_ssize_t low = 0, high = count;
	while (low < high) {
		Py_ssize_t middle = (low + high) / 2;
		if (all[middle]->start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The entry that overlaps the bytes, the last if there are several; NULL for none. */
static storage *overlapping(uintptr_t start, uint64_t bytes)
{
	Py_ssize_t i = behind(start + bytes - 1) - 1;
	return i >= 0 && all[i]->start + all[i]->bytes > start ? all[i] : NULL;
}

static int covers(const storage *s, uintptr_t start, uint64_t bytes)
{
	return s->start <= start && start + bytes <= s->start + s->bytes;
}

/* Takes an entry out of the table. */
static void take(const storage *s)
{
	Py_ssize_t i = behind(s->start) - 1;
	ended++;
	if (i < 0 || all[i] != s)
		return;
	count--;
	memmove(all + i, all + i + 1, (size_t)(count - i) * sizeof(storage *));
	pointers -= s->kind == POINTER;
}

/* The method of the class of storages of torch that an entry of kind POINTER is asked with. New reference. */
static PyObject *ask_pointer(const storage *s, PyObject *method)
{
	return torch.storages != NULL ? PyObject_CallMethodObjArgs(torch.storages, method, s->reference, NULL) : NULL;
}

/* Frees an entry that is not in the table, but not its number. on_death finds that out. Exceptions stay as they are. */
static void drop(storage *s)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	if (s->capsule != NULL)
		PyCapsule_SetContext(s->capsule, s);
	Py_XDECREF(s->capsule);
	if (s->kind == POINTER && s->reference != NULL)
		Py_XDECREF(ask_pointer(s, name__free_weak_ref));
	Py_XDECREF(s->reference);
	PyMem_Free(s);
	PyErr_Restore(type, value, traceback);
}

/*
 * Ends an entry whose memory is gone. It keeps the interpreter lock, since tensors were read whose memory could move
 * meanwhile. That is long only where a program has resized a storage that was registered.
 */
static void end(storage *s)
{
	take(s);
	stepvan_free(s->number, NULL);
	drop(s);
}

/* Runs when an object of an entry is about to go. Its memory goes when this returns. */
static PyObject *on_death(PyObject *capsule, PyObject *reference)
{
	if (PyCapsule_GetContext(capsule) != NULL) /* an operation has found it first */
		Py_RETURN_NONE;
	storage *s = PyCapsule_GetPointer(capsule, NULL);
	if (s == NULL)
		return NULL;
	take(s);
	PyCapsule_SetContext(capsule, s);
	Py_BEGIN_ALLOW_THREADS
	stepvan_free(s->number, NULL);
	Py_END_ALLOW_THREADS
	drop(s);
	Py_RETURN_NONE;
}

/* The object of a weak reference; NULL when it is gone. New reference. */
static PyObject *referent(PyObject *reference)
{
	PyObject *object = PyObject_CallFunctionObjArgs(reference, NULL);
	if (object == NULL)
		PyErr_Clear();
	else if (object == Py_None)
		Py_CLEAR(object);
	return object;
}

/* A number that a method without arguments returns. Returns 0 on failure, without an exception. */
static int number_of(PyObject *object, PyObject *method, uint64_t *number)
{
	PyObject *value = PyObject_CallMethodObjArgs(object, method, NULL);
	if (value != NULL)
		*number = PyLong_AsUnsignedLongLong(value);
	int failed = value == NULL || PyErr_Occurred() != NULL;
	Py_XDECREF(value);
	if (failed)
		PyErr_Clear();
	return !failed;
}

/* Where the memory of a storage of torch is. Returns 0 when it has none. */
static int place_of_torch(PyObject *object, uintptr_t *start, uint64_t *bytes)
{
	uint64_t address;
	if (!number_of(object, name_data_ptr, &address) || !number_of(object, name_nbytes, bytes))
		return 0;
	*start = (uintptr_t)address;
	return address != 0 && *bytes > 0;
}

/* The storage of torch that a weak pointer points to; NULL when it is gone. New reference. */
static PyObject *pointee(const storage *s)
{
	PyObject *object = ask_pointer(s, name__new_with_weak_ptr);
	if (object == NULL)
		PyErr_Clear();
	else if (object == Py_None)
		Py_CLEAR(object);
	return object;
}

/* Whether an entry is still of the memory that it was made for. object is a tensor that lies there. */
static int is_valid(const storage *s, PyObject *object)
{
	PyObject *of = s->kind == POINTER ? pointee(s) : referent(s->reference);
	if (of == NULL)
		return 0;
	uintptr_t start = s->start;
	uint64_t bytes = s->bytes;
	int valid = 1;
	if (s->kind == ARRAY)
		valid = numpy_place(of, &start, &bytes);
	else if (s->kind == OBJECT)
		valid = object == NULL || of == object;
	else
		valid = place_of_torch(of, &start, &bytes);
	Py_DECREF(of);
	return valid && start == s->start && bytes == s->bytes;
}

/* Looks at the next entries for a storage that tells nobody of its death, and asks it. */
static void ask_one(void)
{
	static Py_ssize_t next;
	for (Py_ssize_t i = 0; i < count && i < FEW; i++) {
		storage *s = all[next++ % count];
		if (s->kind != POINTER)
			continue;
		if (!is_valid(s, NULL))
			end(s);
		return;
	}
}

/* The object that has the memory of a tensor, and where that memory is. New reference; NULL when nothing tells. */
static PyObject *holder_of(PyObject *object, const stepvan_tensor *tensor, storage *as)
{
	as->start = (uintptr_t)tensor->data;
	as->bytes = tensor->bytes;
	Py_INCREF(object);
	if (numpy.type != NULL && numpy.known && PyObject_TypeCheck(object, (PyTypeObject *)numpy.type)) {
		object = numpy_owner(object);
		as->kind = ARRAY;
		if (PyObject_TypeCheck(object, (PyTypeObject *)numpy.type))
			return numpy_place(object, &as->start, &as->bytes) ? object : (Py_DECREF(object), NULL);
	}
	if (torch.type == NULL || !PyObject_TypeCheck(object, (PyTypeObject *)torch.type)) {
		as->kind = OBJECT;
		return object;
	}
	PyObject *of = storage_of(object);
	int known = of != object && torch.storages != NULL && place_of_torch(of, &as->start, &as->bytes);
	Py_DECREF(object);
	if (!known)
		Py_CLEAR(of);
	as->kind = torch.lasting ? STORAGE : POINTER;
	return of;
}

/* Makes the reference of an entry. Returns 0 when the object cannot be referred to. */
static int refer(storage *s, PyObject *object)
{
	static PyMethodDef function = {"on_death", on_death, METH_O, NULL};
	if (s->kind == POINTER) {
		s->reference = PyObject_CallMethodObjArgs(object, name__weak_ref, NULL);
	} else {
		s->capsule = PyCapsule_New(s, NULL, NULL);
		PyObject *callback = s->capsule != NULL ? PyCFunction_New(&function, s->capsule) : NULL;
		s->reference = callback != NULL ? PyWeakref_NewRef(object, callback) : NULL;
		Py_XDECREF(callback);
	}
	if (s->reference == NULL)
		PyErr_Clear();
	return s->reference != NULL;
}

/* Puts an entry into the table. */
static int put(storage *s)
{
	if (count == capacity) {
		Py_ssize_t more = capacity * 2 + 16;
		storage **at = PyMem_Realloc(all, (size_t)more * sizeof(storage *));
		if (at == NULL)
			return 0;
		all = at;
		capacity = more;
	}
	Py_ssize_t i = behind(s->start);
	memmove(all + i + 1, all + i, (size_t)(count - i) * sizeof(storage *));
	all[i] = s;
	count++;
	pointers += s->kind == POINTER;
	return 1;
}

/* Makes an entry for the memory of an object. Returns its number, 0 on failure. */
static uint64_t enter(const storage *like, PyObject *object)
{
	storage *s = PyMem_Malloc(sizeof(storage));
	if (s == NULL)
		return 0;
	*s = *like;
	s->number = 0;
	s->reference = s->capsule = NULL;
	if (refer(s, object) && stepvan_wrap((void *)s->start, s->bytes, 0, &s->number, NULL) == STEPVAN_OK && put(s))
		return s->number;
	if (s->number != 0)
		stepvan_free(s->number, NULL);
	drop(s);
	return 0;
}

/* Ends the entries of memory that is gone, where other memory is now. Returns 0 when one of them is not gone. */
static int make_way(const storage *s)
{
	for (storage *old; (old = overlapping(s->start, s->bytes)) != NULL;) {
		if (is_valid(old, NULL))
			return 0;
		end(old);
	}
	return 1;
}

/*
 * The number of the storage that a tensor of an operation lies in, 0 for none. The caller holds the object. Budget for
 * a storage that is known: 200 ns, and 1 us for torch before 2.1.
 */
uint64_t storage_number(PyObject *object, const stepvan_tensor *tensor)
{
	if (tensor->bytes == 0 || tensor->device_kind > 1) /* an accelerator holds it */
		return 0;
	if (pointers > 0)
		ask_one();
	storage *s = overlapping((uintptr_t)tensor->data, tensor->bytes), as;
	if (s != NULL && !is_valid(s, object)) {
		end(s);
		s = NULL;
	}
	if (s != NULL)
		return covers(s, (uintptr_t)tensor->data, tensor->bytes) ? s->number : 0;
	if (tensor->bytes < LEAST || count >= MOST)
		return 0;
	PyObject *of = holder_of(object, tensor, &as);
	if (of == NULL)
		return 0;
	uint64_t number = covers(&as, (uintptr_t)tensor->data, tensor->bytes) && make_way(&as) ? enter(&as, of) : 0;
	Py_DECREF(of);
	return number;
}

/* Begins to read the tensors of an operation. */
uint64_t storages_open(void)
{
	return ended;
}

/*
 * Takes the number of storages that have ended since storages_open from the tensors. An object may die although its
 * memory is kept, and one with __dlpack__ gives way to another that shows the same memory.
 */
void storages_close(uint64_t opened, tensors *list)
{
	if (opened == ended)
		return;
	for (Py_ssize_t i = 0; i < list->count; i++) {
		stepvan_tensor *t = &list->at[i];
		if (t->memory == 0 || t->memory == memory_number(t->data, t->bytes))
			continue;
		const storage *s = overlapping((uintptr_t)t->data, t->bytes);
		if (s == NULL || s->number != t->memory)
			t->memory = 0;
	}
}

/* The nodes that register memory by themselves. */
static uint64_t *nodes;

/* Notes whether a node that has started registers memory by itself. */
void storages_begin(uint64_t node)
{
	int32_t registers = 0;
	if (stepvan_registers(node, &registers, NULL) != STEPVAN_OK || !registers)
		return;
	uint64_t *more = PyMem_Realloc(nodes, ((size_t)storages_wanted + 1) * sizeof(uint64_t));
	if (more == NULL)
		return;
	nodes = more;
	nodes[storages_wanted++] = node;
}

/* Notes that a node is closed. */
void storages_end(uint64_t node)
{
	for (int i = 0; i < storages_wanted; i++) {
		if (nodes[i] == node) {
			nodes[i] = nodes[--storages_wanted];
			return;
		}
	}
}
