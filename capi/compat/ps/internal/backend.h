/* The device of the tensors, which is the CPU: StartPS refuses STEPMESH_BACKEND=GPU. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_BACKEND_H
#define STEPVAN_COMPAT_PS_INTERNAL_BACKEND_H

#include <ATen/ATen.h>

#include <cstdlib>

namespace ps {

enum { BACKEND_OK = 0, BACKEND_FAILED = -1 };

/* There is nothing that a stream would be behind with, so events have happened when they are made. */
class Backend {
public:
	static Backend *Get()
	{
		static Backend backend;
		return &backend;
	}
	int SetDevice(int device)
	{
		Device() = device;
		return BACKEND_OK;
	}
	int GetDeviceId() { return Device(); }
	at::Device GetDevice() { return at::Device(at::kCPU); }
	void *Alloc(uint64_t size) { return std::malloc(size); }
	void Free(void *memory) { std::free(memory); }
	void *CreateEvent() { return this; }
	int FreeEvent(void *) { return BACKEND_OK; }
	int RecordEvent(void *, void *) { return BACKEND_OK; }
	int SyncEvent(void *) { return BACKEND_OK; }

private:
	static int &Device()
	{
		static thread_local int device = -1;
		return device;
	}
};

} // namespace ps

#endif
