/* What boundary.c and the Go halves share. */
#ifndef BOUNDARY_H
#define BOUNDARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stepvan.h"

/* How many owners wait to be taken. Go writes it, so that stepvan_released enters Go only when there is one. */
extern uint64_t boundary_released;

/* The result of stepvan_version. Go writes it once. */
extern char boundary_version[128];

/* The present environment. Go itself reads it only when it starts. */
char **boundary_environ(void);

/* Memory for n bytes, aligned for every element; NULL on failure. */
void *boundary_alloc(size_t n);

#endif
