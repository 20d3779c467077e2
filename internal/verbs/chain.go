//go:build cgo

package verbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// SendChain is a chain of requests for the send side of queue pairs, in memory of C. It is filled, posted, and reset.
// One goroutine at a time uses it. Budget: nothing of it allocates.
type SendChain struct {
	resource
	head     *C.struct_sv_send_chain
	requests []C.struct_abi_send_wr
	segments []C.struct_abi_sge
	n, used  int // requests and segments in the chain
}

// NewSendChain makes room for that many requests, with that many segments in all.
func (l *Library) NewSendChain(requests, segments int) (*SendChain, error) {
	c := new(SendChain)
	err := newChain(l, &c.resource, "chain of sends", requests, segments, func() (err error) {
		const head, request, segment = C.sizeof_struct_sv_send_chain, C.sizeof_struct_abi_send_wr, C.sizeof_struct_abi_sge
		p, err := zeroed(1, uintptr(head+requests*request+segments*segment))
		if err != nil {
			return err
		}
		c.head = (*C.struct_sv_send_chain)(p)
		c.requests = unsafe.Slice((*C.struct_abi_send_wr)(unsafe.Add(p, head)), requests)
		c.segments = unsafe.Slice((*C.struct_abi_sge)(unsafe.Add(p, head+requests*request)), segments)
		c.head.first = &c.requests[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// newChain checks the size of a chain and enters it.
func newChain(l *Library, r *resource, name string, requests, segments int, make func() error) error {
	if requests < 1 || requests > maxChain || segments < 0 || segments > maxChain {
		return fmt.Errorf("%w: %s: %d requests and %d segments (want 1 to %d requests, and no more segments)", stepvan.ErrInvalid, name, requests, segments, maxChain)
	}
	return l.objects.create("chain", r, name, nil, make)
}

// maxChain bounds a chain to less than any queue has.
const maxChain = 1 << 20

// Len is the number of requests in the chain, and Room for how many more there is room.
func (c *SendChain) Len() int { return c.n }

// Room is for how many more requests there is room.
func (c *SendChain) Room() int { return len(c.requests) - c.n }

// Reset empties the chain. What was posted is not affected.
func (c *SendChain) Reset() {
	c.n, c.used = 0, 0
	if c.head != nil {
		c.head.count, c.head.signaled, c.head.reads, c.head.bytes = 0, 0, 0, 0
	}
}

// Add appends a request. The error is ErrChainFull when there is no room, and then the chain is as it was.
func (c *SendChain) Add(r Request, segments ...Segment) error {
	if r.Op > OpSendInvalidate || r.Op == opBind || r.Op > OpRead && r.Op < OpInvalidate {
		return errBadRequest
	}
	w, err := c.next(len(segments))
	if err != nil {
		return err
	}
	bytes := c.fill(segments)
	w.wr_id = C.uint64_t(r.ID)
	w.opcode = C.uint32_t(r.Op)
	w.send_flags = C.uint32_t(r.Flags)
	switch r.Op {
	case OpWriteImmediate, OpSendImmediate:
		w.imm_data = C.uint32_t(networkOrder(r.Immediate))
	default:
		w.imm_data = C.uint32_t(r.Invalidate)
	}
	w.remote_addr = C.uint64_t(r.Remote)
	w.rkey = C.uint32_t(r.Key)
	c.count(r.Op, r.Flags, bytes)
	return nil
}

// Bind appends a request that binds a window to length bytes at addr of registered memory. The window is for the peer
// of the queue pair that the request is posted to. access is RemoteWrite, RemoteRead or both. The memory region needs
// BindWindows. The result is the next key of the window: later requests in the same queue may tell it to the peer.
func (c *SendChain) Bind(id uint64, flags Flags, w *MW, m *MR, addr uintptr, length uint64, access Access) (RemoteKey, error) {
	if w.mw == nil || m.mr == nil {
		return 0, errWindowClosed
	}
	r, err := c.next(0)
	if err != nil {
		return 0, err
	}
	w.key = nextKey(w.key)
	r.wr_id = C.uint64_t(id)
	r.opcode = C.uint32_t(opBind)
	r.send_flags = C.uint32_t(flags)
	r.imm_data = 0 // soft-RoCE refuses a bind with what an earlier request has left there
	r.bind_mw = C.uint64_t(uintptr(unsafe.Pointer(w.mw)))
	r.bind_rkey = C.uint32_t(w.key)
	r.bind_mr = C.uint64_t(uintptr(unsafe.Pointer(m.mr)))
	r.bind_addr = C.uint64_t(addr)
	r.bind_length = C.uint64_t(length)
	r.bind_access = C.uint32_t(access)
	c.count(opBind, flags, 0)
	return w.key, nil
}

// next takes the next request, and links it to the one before.
func (c *SendChain) next(segments int) (*C.struct_abi_send_wr, error) {
	if c.n == len(c.requests) || segments > len(c.segments)-c.used {
		return nil, ErrChainFull
	}
	w := &c.requests[c.n]
	w.next = 0
	w.num_sge = C.int32_t(segments)
	w.sg_list = 0
	if segments > 0 {
		w.sg_list = C.uint64_t(uintptr(unsafe.Pointer(&c.segments[c.used])))
	}
	if c.n > 0 {
		c.requests[c.n-1].next = C.uint64_t(uintptr(unsafe.Pointer(w)))
	}
	c.n++
	return w, nil
}

func (c *SendChain) fill(segments []Segment) (bytes uint64) {
	bytes = fillSegments(c.segments[c.used:], segments)
	c.used += len(segments)
	return bytes
}

// fillSegments writes the segments of a request, and adds up their lengths.
func fillSegments(to []C.struct_abi_sge, segments []Segment) (bytes uint64) {
	for i, s := range segments {
		to[i] = C.struct_abi_sge{addr: C.uint64_t(s.Addr), length: C.uint32_t(s.Length), lkey: C.uint32_t(s.Key)}
		bytes += uint64(s.Length)
	}
	return bytes
}

func (c *SendChain) count(op Opcode, flags Flags, bytes uint64) {
	h := c.head
	h.count++
	h.bytes += C.uint64_t(bytes)
	if flags&Signaled != 0 {
		h.signaled++
	}
	if op == OpRead {
		h.reads++
	}
}

// Close frees the memory of the chain.
func (c *SendChain) Close() error {
	return c.close(func() error {
		C.free(unsafe.Pointer(c.head))
		c.head, c.requests, c.segments, c.n, c.used = nil, nil, nil, 0, 0
		return nil
	})
}

// ReceiveChain is a chain of requests for the receive side of queue pairs. It is used as SendChain is.
type ReceiveChain struct {
	resource
	head     *C.struct_sv_recv_chain
	requests []C.struct_abi_recv_wr
	segments []C.struct_abi_sge
	n, used  int
}

// NewReceiveChain makes room for that many requests, with that many segments in all.
func (l *Library) NewReceiveChain(requests, segments int) (*ReceiveChain, error) {
	c := new(ReceiveChain)
	err := newChain(l, &c.resource, "chain of receives", requests, segments, func() (err error) {
		const head, request, segment = C.sizeof_struct_sv_recv_chain, C.sizeof_struct_abi_recv_wr, C.sizeof_struct_abi_sge
		p, err := zeroed(1, uintptr(head+requests*request+segments*segment))
		if err != nil {
			return err
		}
		c.head = (*C.struct_sv_recv_chain)(p)
		c.requests = unsafe.Slice((*C.struct_abi_recv_wr)(unsafe.Add(p, head)), requests)
		c.segments = unsafe.Slice((*C.struct_abi_sge)(unsafe.Add(p, head+requests*request)), segments)
		c.head.first = &c.requests[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Len is the number of requests in the chain.
func (c *ReceiveChain) Len() int { return c.n }

// Room is for how many more requests there is room.
func (c *ReceiveChain) Room() int { return len(c.requests) - c.n }

// Reset empties the chain.
func (c *ReceiveChain) Reset() {
	c.n, c.used = 0, 0
	if c.head != nil {
		c.head.count = 0
	}
}

// Add appends a request for one message into the segments. soft-iWARP refuses one without segments.
func (c *ReceiveChain) Add(id uint64, segments ...Segment) error {
	if c.n == len(c.requests) || len(segments) > len(c.segments)-c.used {
		return ErrChainFull
	}
	w := &c.requests[c.n]
	*w = C.struct_abi_recv_wr{wr_id: C.uint64_t(id), num_sge: C.int32_t(len(segments))}
	if len(segments) > 0 {
		w.sg_list = C.uint64_t(uintptr(unsafe.Pointer(&c.segments[c.used])))
		fillSegments(c.segments[c.used:], segments)
	}
	if c.n > 0 {
		c.requests[c.n-1].next = C.uint64_t(uintptr(unsafe.Pointer(w)))
	}
	c.n++
	c.used += len(segments)
	c.head.count++
	return nil
}

// Close frees the memory of the chain.
func (c *ReceiveChain) Close() error {
	return c.close(func() error {
		C.free(unsafe.Pointer(c.head))
		c.head, c.requests, c.segments, c.n, c.used = nil, nil, nil, 0, 0
		return nil
	})
}
