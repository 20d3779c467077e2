package main

// #include "boundary.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/tensor"
)

// memory is one number of stepvan_alloc, stepvan_wrap or stepvan_keep.
type memory struct {
	region     *tensor.Region
	generation uint32 // of the region, which is reused for other memory
	base       uintptr
	bytes      uint64

	pool   *tensor.Allocator // of stepvan_alloc
	window *window           // of stepvan_wrap
	owned  bool              // stepvan_wrap has an owner
	held   bool              // by stepvan_keep
}

// free releases the memory. Operations that hold it may finish.
func (m *memory) free() {
	switch {
	case m.held:
		m.region.Release()
	case m.window != nil:
		m.window.Shut()
	default:
		m.pool.Put(m.region)
	}
}

// goAlloc implements
//
//	int32_t stepvan_alloc(uint64_t node, uint64_t bytes, uint32_t flags, void **data, uint64_t *memory,
//	    stepvan_error *error);
//
//export goAlloc
func goAlloc(id cUint64, bytes cUint64, flags cUint32, data *unsafe.Pointer, number *cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error { return n.alloc(bytes, flags, data, number) })
}

func (n *node) alloc(bytes cUint64, flags cUint32, data *unsafe.Pointer, number *cUint64) error {
	switch {
	case data == nil || number == nil:
		return isNull("data and memory")
	case bytes == 0 || bytes > math.MaxInt64:
		return invalid("that many bytes cannot be allocated (got %d, want 1 to %d)", bytes, uint64(math.MaxInt64))
	case flags&^(flagZeroed|flagOwnFile) != 0:
		return invalid("flags: some do not exist (got %#x, want STEPVAN_ZEROED and STEPVAN_OWN_FILE at most)", flags)
	}
	pool := n.live.Load().Memory()
	get := pool.Alloc
	switch {
	case flags&flagOwnFile != 0: // the file comes with zeros
		get = pool.AllocFile
	case flags&flagZeroed != 0:
		get = pool.AllocZeroed
	}
	r, err := get(int(bytes))
	if err != nil {
		return err
	}
	m := memory{region: r, generation: r.Generation(), base: address(r.Bytes()), bytes: uint64(bytes), pool: pool}
	if err := putMemory(&m, number); err != nil {
		return err
	}
	*data = unsafe.Pointer(unsafe.SliceData(r.Bytes()))
	return nil
}

// putMemory gives memory a number, or frees it.
func putMemory(m *memory, number *cUint64) error {
	id := memories.Put(*m)
	if id == 0 {
		m.free()
		return tooMany("memories")
	}
	*number = cUint64(id)
	return nil
}

// goWrap implements
//
//	int32_t stepvan_wrap(void *data, uint64_t bytes, uint64_t owner, uint64_t *memory, stepvan_error *error);
//
//export goWrap
func goWrap(data unsafe.Pointer, bytes, owner cUint64, number *cUint64, e *cError) cCode {
	return half(e, func() error { return wrap(data, bytes, owner, number) })
}

func wrap(data unsafe.Pointer, bytes, owner cUint64, number *cUint64) error {
	switch {
	case number == nil:
		return isNull("memory")
	case data == nil || bytes == 0:
		return invalid("%d bytes at %#x cannot be memory: give an address and at least one byte", bytes, uintptr(data))
	case !addressable(data, uint64(bytes)):
		return invalid("%d bytes at %#x do not fit into an address space", bytes, uintptr(data))
	}
	o := foreign.begin(uint64(owner))
	w, r := foreign.expose(unsafe.Slice((*byte)(data), bytes), o)
	m := memory{region: r, generation: r.Generation(), base: uintptr(data), bytes: uint64(bytes), window: w, owned: owner != 0}
	err := putMemory(&m, number)
	foreign.end(o, err == nil)
	return err
}

// noMemory is the error of a number without memory.
func noMemory(number cUint64) error { return missing(&memories, "memory", "was freed", number) }

// goFree implements
//
//	int32_t stepvan_free(uint64_t memory, stepvan_error *error);
//
//export goFree
func goFree(number cUint64, e *cError) cCode {
	return half(e, func() error {
		m, ok := memories.Take(numbers.ID(number))
		if !ok {
			return noMemory(number)
		}
		registering.end(number)
		m.free()
		return nil
	})
}
