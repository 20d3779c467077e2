/*
 * Stands for libcuda in tests. It has two devices, whose memory has a fixed address: device 0 has the first half. An
 * event behind a copy is over when it was asked for twice. Error 9999 has the counts of what is left as its text. To
 * pin 13 bytes makes the default stream of device 0 fail.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 16, LOOKS = 2 };

/* The address sanitizer has its heap elsewhere. */
#define MEMORY ((char *)0x520000000000)

static int contexts[2], current = -1, depth, streams, events, pinned, flushes;

struct stream {
	int context, busy, failed;
};
struct event {
	struct stream *of;
};
static struct stream defaults[2] = {{0, 0, 0}, {1, 0, 0}}, all[16];
static struct event list[64];

static struct stream *of(void *stream)
{
	return (uintptr_t)stream <= 2 ? &defaults[current] : stream;
}

int cuInit(unsigned int flags)
{
	void *at = mmap(MEMORY, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return at != (void *)MEMORY || flags != 0;
}
int cuDeviceGetCount(int *n) { return *n = 2, 0; }
int cuDeviceGet(int *device, int number) { return *device = number + 10, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &contexts[device - 10], 0; }
int cuCtxPushCurrent_v2(void *context) { return current = (int)((int *)context - contexts), depth++, 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = &contexts[current], current = -1, depth--, 0; }

int cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
	uint64_t at = address - (uintptr_t)MEMORY;
	if (at >= BYTES)
		return 1;
	*(int *)value = attribute == 2 ? 2 : attribute == 9 ? at >= BYTES / 2 : -1;
	return 0;
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	if (flags != 1 || current < 0 || streams == 16)
		return 1;
	all[streams] = (struct stream){current, 0, 0};
	*stream = &all[streams++];
	return 0;
}
int cuStreamDestroy_v2(void *stream) { return streams--, stream == NULL; }
int cuStreamGetCtx(void *stream, void **context) { return *context = &contexts[of(stream)->context], 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned int flags) { return stream == NULL || event == NULL || flags != 0; }

static int copy(void *to, const void *from, size_t bytes, void *stream)
{
	if (current < 0 || of(stream)->context != current)
		return 201;
	memcpy(to, from, bytes);
	of(stream)->busy = LOOKS;
	return of(stream)->failed;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) { return copy(to, (void *)(uintptr_t)from, bytes, stream); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) { return copy((void *)(uintptr_t)to, from, bytes, stream); }

int cuEventCreate(void **event, unsigned int flags) { return *event = &list[events++], flags != 2; }
int cuEventRecord(void *event, void *stream) { return ((struct event *)event)->of = of(stream), 0; }
int cuEventQuery(void *event)
{
	struct stream *s = ((struct event *)event)->of;
	return s->failed ? s->failed : s->busy > 0 ? (s->busy--, 600) : 0;
}
int cuEventDestroy_v2(void *event) { return events--, event == NULL; }

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	if (bytes == 13)
		return defaults[0].failed = 700;
	return pinned++, memory == NULL || flags != 1;
}
int cuMemHostUnregister(void *memory) { return pinned--, memory == NULL; }
int cuGetErrorString(int error, const char **text)
{
	static char left[96];
	snprintf(left, sizeof left, "%d streams, %d events, %d pinned, depth %d, %d flushes", streams, events, pinned, depth, flushes);
	*text = error == 9999 ? left : error == 700 ? "an illegal address" : "some error";
	return 0;
}

#ifndef OLD
int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags)
{
	if (address % 4096 != 0 || bytes % 4096 != 0 || type != 1 || flags != 0)
		return 1;
	if (address == (uintptr_t)MEMORY + BYTES / 2)
		return 801;
	*(int *)handle = dup(0);
	return 0;
}
int cuPointerSetAttribute(const void *value, int attribute, uint64_t address)
{
	return *(const unsigned int *)value != 1 || attribute != 6 || address - (uintptr_t)MEMORY >= BYTES;
}
/* Device 0 must be flushed. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	*value = attribute == 117 ? 1 : device == 10 ? 0 : 100;
	return attribute != 117 && attribute != 118;
}
int cuFlushGPUDirectRDMAWrites(int target, int scope) { return flushes++, current != 0 || target != 0 || scope != 100; }
#endif
