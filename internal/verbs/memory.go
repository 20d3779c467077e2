//go:build cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// MR is registered memory, a memory region. It stays pinned until Close.
type MR struct {
	resource
	device *Device
	mr     *C.struct_abi_mr
	addr   uintptr
	length uint64
	local  LocalKey
	remote RemoteKey
}

// Register registers length bytes at addr, which must be mapped, not in the heap of Go, and stay there until Close. It
// blocks while the kernel pins the pages: 0.1 to 0.5 s per GiB.
func (p *PD) Register(addr uintptr, length uint64, access Access) (*MR, error) {
	name := fmt.Sprintf("memory region of %s (%d bytes at %#x)", p.device.name, length, addr)
	return p.register(opRegister, name, addr, length, func() (*C.struct_abi_mr, error) {
		mr, err := C.sv_reg_mr(p.pd, C.uintptr_t(addr), C.uint64_t(length), C.uint32_t(access))
		return mr, err
	})
}

// RegisterDMABuf registers length bytes at offset of a dma-buf, which is the memory of an accelerator as a descriptor.
// Requests name it by addresses from addr on.
func (p *PD) RegisterDMABuf(fd int, offset, length uint64, addr uintptr, access Access) (*MR, error) {
	name := fmt.Sprintf("memory region of %s (%d bytes of dma-buf %d)", p.device.name, length, fd)
	return p.register("reg_dmabuf_mr", name, addr, length, func() (*C.struct_abi_mr, error) {
		mr, err := C.sv_reg_dmabuf(p.pd, C.uint64_t(offset), C.uint64_t(length), C.uint64_t(addr), C.int(fd), C.uint32_t(access))
		return mr, err
	})
}

func (p *PD) register(op, name string, addr uintptr, length uint64, register func() (*C.struct_abi_mr, error)) (*MR, error) {
	m := &MR{device: p.device, addr: addr, length: length}
	err := p.device.library.objects.create(op, &m.resource, name, []*resource{&p.resource}, func() error {
		var err error
		if m.mr, err = register(); m.mr == nil {
			return call(op, p.device.name, err)
		}
		m.local, m.remote = LocalKey(m.mr.lkey), RemoteKey(m.mr.rkey)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// LocalKey is the key for segments.
func (m *MR) LocalKey() LocalKey { return m.local }

// RemoteKey is the key for peers.
func (m *MR) RemoteKey() RemoteKey { return m.remote }

// Addr is where the memory begins.
func (m *MR) Addr() uintptr { return m.addr }

// Length is how long the memory is, in bytes.
func (m *MR) Length() uint64 { return m.length }

// Close unregisters the memory. It blocks as Register does. Afterwards no device reaches the memory.
func (m *MR) Close() error {
	return m.close(func() error {
		err := destroy(opUnregister, m.device.name, C.SV_MR, unsafe.Pointer(m.mr))
		if err == nil {
			m.mr = nil
		}
		return err
	})
}

// MW is a memory window of type 2: a key for a part of registered memory that a queue pair binds and invalidates.
type MW struct {
	resource
	device *Device
	mw     *C.struct_abi_mw
	key    RemoteKey
}

// NewMW makes a window that is not bound.
func (p *PD) NewMW() (*MW, error) {
	w := &MW{device: p.device}
	err := p.device.library.objects.create("alloc_mw", &w.resource, "memory window of "+p.device.name, []*resource{&p.resource}, func() error {
		var err error
		if w.mw, err = C.sv_alloc_mw(p.device.context, p.pd); w.mw == nil {
			return call("alloc_mw", p.device.name, err)
		}
		w.key = RemoteKey(w.mw.rkey)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Key is the key of the last bind that was added to a chain, or that of the unbound window.
func (w *MW) Key() RemoteKey { return w.key }

// nextKey has the next number in the byte of the key that belongs to the program.
func nextKey(k RemoteKey) RemoteKey { return k&^0xff | (k+1)&0xff }

// Close frees the window. Its key is invalid afterwards.
func (w *MW) Close() error {
	return w.close(func() error {
		err := destroy("dealloc_mw", w.device.name, C.SV_MW, unsafe.Pointer(w.mw))
		if err == nil {
			w.mw = nil
		}
		return err
	})
}
