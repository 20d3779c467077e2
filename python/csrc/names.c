/* Names of attributes, interned once. */
#include "core.h"

#include "names.h"

#define DEFINE(name) PyObject *name_##name;
NAMES(DEFINE)
#undef DEFINE

int names_ready(void)
{
#define INTERN(name) \
	if (name_##name == NULL && (name_##name = PyUnicode_InternFromString(#name)) == NULL) \
		return -1;
	NAMES(INTERN)
#undef INTERN
	return 0;
}
