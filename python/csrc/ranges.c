/* Ranges of addresses that do not overlap, in order. */
#include "core.h"

/* The index of the first range that starts after the address. */
static Py_ssize_t behind(const ranges *table, uintptr_t address)
{
	Py_ssize_t low = 0, high = table->count;
	while (low < high) {
		Py_ssize_t middle = (low + high) / 2;
		if (table->at[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Adds a range. */
int ranges_add(ranges *table, const void *data, uint64_t bytes, PyObject *object)
{
	if (table->count == table->capacity) {
		Py_ssize_t capacity = table->capacity * 2 + 16;
		range *at = PyMem_Realloc(table->at, (size_t)capacity * sizeof(range));
		if (at == NULL) {
			PyErr_NoMemory();
			return -1;
		}
		table->at = at;
		table->capacity = capacity;
	}
	uintptr_t start = (uintptr_t)data;
	Py_ssize_t i = behind(table, start);
	memmove(table->at + i + 1, table->at + i, (size_t)(table->count - i) * sizeof(range));
	table->at[i] = (range){start, start + bytes, object};
	table->count++;
	return 0;
}

/* Removes the range of object that starts at data, if it is there. */
void ranges_remove(ranges *table, const void *data, PyObject *object)
{
	for (Py_ssize_t i = behind(table, (uintptr_t)data) - 1; i >= 0 && table->at[i].start == (uintptr_t)data; i--) {
		if (table->at[i].object != object)
			continue;
		table->count--;
		memmove(table->at + i, table->at + i + 1, (size_t)(table->count - i) * sizeof(range));
		return;
	}
}

/* The object whose range contains all the bytes, or NULL. Borrowed. */
PyObject *ranges_find(const ranges *table, const void *data, uint64_t bytes)
{
	Py_ssize_t i = behind(table, (uintptr_t)data) - 1;
	if (i < 0 || bytes > table->at[i].end - (uintptr_t)data || (uintptr_t)data > table->at[i].end)
		return NULL;
	return table->at[i].object;
}
