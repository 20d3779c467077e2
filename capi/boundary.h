/* What boundary.c and the Go halves share. */
#ifndef BOUNDARY_H
#define BOUNDARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stepvan.h"

/* How many owners wait to be taken; written by Go, so that stepvan_released need not
 * enter Go to find none. */
extern uint64_t boundary_released;

/* What stepvan_version returns; written by Go, once. */
extern char boundary_version[128];

/* The environment of this moment, which Go reads once, when it starts. */
char **boundary_environ(void);

/* Memory for n bytes, aligned for every element; NULL when there is none. */
void *boundary_alloc(size_t n);

#endif
