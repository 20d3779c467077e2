#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Numbers of cuda.h. */
enum {
	INVALID_VALUE = 1,
	NOT_READY = 600,
	MEMORY_TYPE = 2,
	DEVICE_ORDINAL = 9,
	MEMORY_OF_DEVICE = 2,
	NON_BLOCKING = 1,
	DISABLE_TIMING = 2,
	PORTABLE = 1,
	DMA_BUF = 1,
	SYNC_MEMOPS = 6,
	FLUSH_OPTIONS = 117,
	WRITES_ORDERING = 118,
	FLUSH_BY_HOST = 1,
	ORDERED_FOR_OWNER = 100, /* also the scope of a flush */
	CURRENT_CONTEXT = 0,
	MAX_DEVICES = 64,
	SPECIAL_STREAMS = 2, /* handles up to this one are streams of whatever context is current */
};

static struct {
	int (*init)(unsigned int flags);
	int (*device_count)(int *n);
	int (*device_get)(int *device, int number);
	int (*context_retain)(void **context, int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **context);
	int (*pointer)(void *value, int attribute, uint64_t address);
	int (*stream_create)(void **stream, unsigned int flags);
	int (*stream_destroy)(void *stream);
	int (*stream_context)(void *stream, void **context);
	int (*stream_wait)(void *stream, void *event, unsigned int flags);
	int (*to_host)(void *to, uint64_t from, size_t bytes, void *stream);
	int (*from_host)(uint64_t to, const void *from, size_t bytes, void *stream);
	int (*event_create)(void **event, unsigned int flags);
	int (*event_record)(void *event, void *stream);
	int (*event_query)(void *event);
	int (*event_destroy)(void *event);
	int (*host_register)(void *memory, size_t bytes, unsigned int flags);
	int (*host_unregister)(void *memory);
	int (*error_text)(int error, const char **text);
	int (*range_handle)(void *handle, uint64_t address, size_t bytes, int type, unsigned long long flags); /* may be missing */
	int (*set_pointer)(const void *value, int attribute, uint64_t address); /* may be missing */
	int (*attribute)(int *value, int attribute, int device); /* may be missing */
	int (*flush)(int target, int scope); /* may be missing */
} cu;

static const struct {
	const char *name;
	void **place;
	int optional;
} symbols[] = {
	{"cuInit", (void **)&cu.init, 0},
	{"cuDeviceGetCount", (void **)&cu.device_count, 0},
	{"cuDeviceGet", (void **)&cu.device_get, 0},
	{"cuDevicePrimaryCtxRetain", (void **)&cu.context_retain, 0},
	{"cuCtxPushCurrent_v2", (void **)&cu.context_push, 0},
	{"cuCtxPopCurrent_v2", (void **)&cu.context_pop, 0},
	{"cuPointerGetAttribute", (void **)&cu.pointer, 0},
	{"cuStreamCreate", (void **)&cu.stream_create, 0},
	{"cuStreamDestroy_v2", (void **)&cu.stream_destroy, 0},
	{"cuStreamGetCtx", (void **)&cu.stream_context, 0},
	{"cuStreamWaitEvent", (void **)&cu.stream_wait, 0},
	{"cuMemcpyDtoHAsync_v2", (void **)&cu.to_host, 0},
	{"cuMemcpyHtoDAsync_v2", (void **)&cu.from_host, 0},
	{"cuEventCreate", (void **)&cu.event_create, 0},
	{"cuEventRecord", (void **)&cu.event_record, 0},
	{"cuEventQuery", (void **)&cu.event_query, 0},
	{"cuEventDestroy_v2", (void **)&cu.event_destroy, 0},
	{"cuMemHostRegister_v2", (void **)&cu.host_register, 0},
	{"cuMemHostUnregister", (void **)&cu.host_unregister, 0},
	{"cuGetErrorString", (void **)&cu.error_text, 0},
	{"cuMemGetHandleForAddressRange", (void **)&cu.range_handle, 1},
	{"cuPointerSetAttribute", (void **)&cu.set_pointer, 1},
	{"cuDeviceGetAttribute", (void **)&cu.attribute, 1},
	{"cuFlushGPUDirectRDMAWrites", (void **)&cu.flush, 1},
};

static int device_count;
static void *contexts[MAX_DEVICES]; /* made on first use, under the lock: a context takes memory of its device */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[512];

const char *cuda_text(int error)
{
	const char *text = NULL;
	return cu.error_text != NULL && cu.error_text(error, &text) == 0 && text != NULL ? text : "unknown error";
}

const char *cuda_load(const char *name, int *devices)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(reason, sizeof reason, "%s", dlerror());
		return reason;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		*symbols[i].place = dlsym(library, symbols[i].name);
		if (*symbols[i].place == NULL && !symbols[i].optional) {
			snprintf(reason, sizeof reason, "%s has no function %s", name, symbols[i].name);
			dlclose(library);
			return reason;
		}
	}
	memset(contexts, 0, sizeof contexts);
	int failed = cu.init(0);
	if (failed == 0)
		failed = cu.device_count(&device_count);
	if (failed != 0) {
		snprintf(reason, sizeof reason, "%s: %s (error %d)", name, cuda_text(failed), failed);
		return reason;
	}
	if (device_count > MAX_DEVICES)
		device_count = MAX_DEVICES;
	*devices = device_count;
	return NULL;
}

static int context_of(int number, void **context)
{
	int failed = 0, device;
	pthread_mutex_lock(&lock);
	if (contexts[number] == NULL) {
		failed = cu.device_get(&device, number);
		if (failed == 0)
			failed = cu.context_retain(&contexts[number], device);
	}
	*context = contexts[number];
	pthread_mutex_unlock(&lock);
	return failed;
}

/* Makes the context of a device current; leave takes it back. */
static int enter(int number)
{
	void *context;
	if (number < 0 || number >= device_count)
		return INVALID_VALUE;
	int failed = context_of(number, &context);
	return failed != 0 ? failed : cu.context_push(context);
}

static int leave(int failed)
{
	void *context;
	int popped = cu.context_pop(&context);
	return failed != 0 ? failed : popped;
}

int cuda_locate(uint64_t address, int *device)
{
	unsigned int type = 0;
	*device = -1;
	int failed = cu.pointer(&type, MEMORY_TYPE, address);
	if (failed == INVALID_VALUE)
		return 0; /* memory that CUDA does not know */
	if (failed != 0 || type != MEMORY_OF_DEVICE)
		return failed;
	return cu.pointer(device, DEVICE_ORDINAL, address);
}

int cuda_stream_create(int device, uint64_t *stream)
{
	void *made = NULL;
	int failed = enter(device);
	if (failed != 0)
		return failed;
	failed = leave(cu.stream_create(&made, NON_BLOCKING));
	*stream = (uintptr_t)made;
	return failed;
}

int cuda_stream_destroy(int device, uint64_t stream)
{
	int failed = enter(device);
	return failed != 0 ? failed : leave(cu.stream_destroy((void *)(uintptr_t)stream));
}

int cuda_stream_check(int device, uint64_t stream, int *own)
{
	void *context = NULL;
	*own = 1;
	int failed = stream > SPECIAL_STREAMS ? enter(device) : 0;
	if (failed != 0 || stream <= SPECIAL_STREAMS)
		return failed;
	failed = leave(cu.stream_context((void *)(uintptr_t)stream, &context));
	void *want;
	if (failed == 0)
		failed = context_of(device, &want);
	if (failed == 0)
		*own = context == want;
	return failed;
}

int cuda_to_host(int device, uint64_t stream, void *to, uint64_t from, size_t bytes)
{
	int failed = enter(device);
	return failed != 0 ? failed : leave(cu.to_host(to, from, bytes, (void *)(uintptr_t)stream));
}

int cuda_from_host(int device, uint64_t stream, uint64_t to, const void *from, size_t bytes)
{
	int failed = enter(device);
	return failed != 0 ? failed : leave(cu.from_host(to, from, bytes, (void *)(uintptr_t)stream));
}

int cuda_event_record(int device, uint64_t stream, uint64_t *event)
{
	void *made = NULL;
	int failed = enter(device);
	if (failed != 0)
		return failed;
	failed = cu.event_create(&made, DISABLE_TIMING);
	if (failed == 0 && (failed = cu.event_record(made, (void *)(uintptr_t)stream)) != 0)
		cu.event_destroy(made);
	*event = (uintptr_t)made;
	return leave(failed);
}

int cuda_event_query(int device, uint64_t event, int *over)
{
	int failed = enter(device);
	if (failed != 0)
		return failed;
	int state = cu.event_query((void *)(uintptr_t)event);
	*over = state != NOT_READY;
	return leave(state == NOT_READY ? 0 : state);
}

int cuda_event_destroy(int device, uint64_t event)
{
	int failed = enter(device);
	return failed != 0 ? failed : leave(cu.event_destroy((void *)(uintptr_t)event));
}

int cuda_stream_follow(int device, uint64_t stream, uint64_t event)
{
	int failed = enter(device);
	return failed != 0 ? failed : leave(cu.stream_wait((void *)(uintptr_t)stream, (void *)(uintptr_t)event, 0));
}

/* Memory is pinned for all devices. The call needs a context, of whichever device. */
int cuda_pin(void *memory, size_t bytes)
{
	int failed = enter(0);
	return failed != 0 ? failed : leave(cu.host_register(memory, bytes, PORTABLE));
}

int cuda_unpin(void *memory)
{
	int failed = enter(0);
	return failed != 0 ? failed : leave(cu.host_unregister(memory));
}

/* Copies that return before they are over could otherwise overtake what another device does with the memory. Memory of
 * some allocators is in order anyway, and then the call fails. */
static void order_copies(uint64_t address)
{
	unsigned int yes = 1;
	if (cu.set_pointer != NULL)
		cu.set_pointer(&yes, SYNC_MEMOPS, address);
}

int cuda_export(int device, uint64_t address, size_t bytes, int *fd)
{
	int failed = enter(device);
	if (failed != 0)
		return failed;
	order_copies(address); /* also for devices that reach the memory without a file */
	if (cu.range_handle == NULL)
		return leave(0) != 0 ? INVALID_VALUE : -1;
	return leave(cu.range_handle(fd, address, bytes, DMA_BUF, 0));
}

/* Libraries before CUDA 11.3 have neither the attributes nor the call. */
int cuda_flush(int device)
{
	int ordering = 0, options = 0, handle;
	if (cu.attribute == NULL || device < 0 || device >= device_count)
		return -1;
	int failed = cu.device_get(&handle, device);
	if (failed == 0)
		failed = cu.attribute(&ordering, WRITES_ORDERING, handle);
	if (failed != 0)
		return failed == INVALID_VALUE ? -1 : failed;
	if (ordering >= ORDERED_FOR_OWNER)
		return 0;
	failed = cu.attribute(&options, FLUSH_OPTIONS, handle);
	if (failed != 0 || (options & FLUSH_BY_HOST) == 0 || cu.flush == NULL)
		return -1;
	failed = enter(device);
	return failed != 0 ? failed : leave(cu.flush(CURRENT_CONTEXT, ORDERED_FOR_OWNER));
}
