package main

// #include "boundary.h"
import "C"

import "unsafe"

// goKeep implements
//
//	int32_t stepvan_keep(uint64_t node, uint64_t handler, const void *data, uint64_t *memory,
//	    stepvan_error *error);
//
//export goKeep
func goKeep(id, handler cUint64, data unsafe.Pointer, number *cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		if data == nil || number == nil {
			return isNull("data and memory")
		}
		return n.requests.visit(uint64(handler), func(p *pending) error { return p.keepMemory(data, number) })
	})
}

// keepMemory holds memory that C got with the request, until stepvan_free of the number.
func (p *pending) keepMemory(data unsafe.Pointer, number *cUint64) error {
	for i := range p.known {
		b := p.known[i].Bytes()
		if len(b) == 0 || unsafe.Pointer(unsafe.SliceData(b)) != data {
			continue
		}
		r := p.known[i].Region()
		if err := r.Retain(); err != nil {
			return err
		}
		return putMemory(&memory{region: r, generation: r.Generation(), base: uintptr(data), bytes: uint64(len(b)), held: true}, number)
	}
	return invalid("no tensor of the request is at %#x: give the data of one", uintptr(data))
}
