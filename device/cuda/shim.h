/* What the driver calls of libcuda. Each function returns 0, or a number of cudaError_enum. */
#ifndef SHIM_H
#define SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Opens a library and all its devices. Returns NULL, or why not: the text is valid until the next call. */
const char *cuda_load(const char *name, int *devices);

/* The text of an error. */
const char *cuda_text(int error);

/* *device is what holds the memory at an address: -1 where no device does. */
int cuda_locate(uint64_t address, int *device);

int cuda_stream_create(int device, uint64_t *stream);
int cuda_stream_destroy(int device, uint64_t stream);
/* *own is 1 if a stream is of the device. */
int cuda_stream_check(int device, uint64_t stream, int *own);

int cuda_to_host(int device, uint64_t stream, void *to, uint64_t from, size_t bytes);
int cuda_from_host(int device, uint64_t stream, uint64_t to, const void *from, size_t bytes);

int cuda_event_record(int device, uint64_t stream, uint64_t *event);
/* *over is 1 when the work before the event is over. */
int cuda_event_query(int device, uint64_t event, int *over);
int cuda_event_destroy(int device, uint64_t event);
int cuda_stream_follow(int device, uint64_t stream, uint64_t event);

int cuda_pin(void *memory, size_t bytes);
int cuda_unpin(void *memory);

/* -1: the library is too old to export memory. */
int cuda_export(int device, uint64_t address, size_t bytes, int *fd);

/* Has the device see what others have written to its memory. -1: it cannot promise that. */
int cuda_flush(int device);

#endif
