//go:build cgo

package verbs

// #cgo noescape sv_poll
// #cgo nocallback sv_poll
// #cgo noescape sv_arm
// #cgo nocallback sv_arm
// #cgo noescape sv_cq_event
// #cgo nocallback sv_cq_event
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"syscall"
	"unsafe"

	"github.com/stepvan/stepvan"
)

// CompletionChannel wakes a program that waits for completions: its descriptor is readable after an armed queue got
// one.
type CompletionChannel struct {
	resource
	device  *Device
	channel *C.struct_abi_comp_channel
	fd      int

	mu     sync.Mutex      // guards what follows, and CQ.events
	queues map[uintptr]*CQ // by the address of the object of C
}

// NewCompletionChannel makes a channel.
func (d *Device) NewCompletionChannel() (*CompletionChannel, error) {
	c := &CompletionChannel{device: d, queues: map[uintptr]*CQ{}}
	err := d.library.objects.create("create_comp_channel", &c.resource, "completion channel of "+d.name, []*resource{&d.resource}, func() error {
		var err error
		if c.channel, err = C.sv_create_channel(d.context); c.channel == nil {
			return call("create_comp_channel", d.name, err)
		}
		c.fd = int(c.channel.fd)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// FD is the descriptor, which does not block.
func (c *CompletionChannel) FD() int { return c.fd }

// Next returns a queue that got a completion since it was armed, or nil. That queue must be armed again,
// and then polled. One goroutine at a time calls Next.
func (c *CompletionChannel) Next() (*CQ, error) {
	if c.channel == nil {
		return nil, errChannelClosed
	}
	cq, err := C.sv_cq_event(c.channel)
	if cq == nil {
		if errors.Is(err, syscall.EAGAIN) {
			return nil, nil
		}
		return nil, call("get_cq_event", c.device.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[uintptr(unsafe.Pointer(cq))]
	if q == nil { // its Close waits for this
		C.sv_ack_cq_events(cq, 1)
		return nil, nil
	}
	q.events++
	return q, nil
}

func (c *CompletionChannel) add(q *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[q.address()] = q
}

// remove has events of the queue dropped, and returns how many were read before.
func (c *CompletionChannel) remove(q *CQ) (events uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, q.address())
	events, q.events = q.events, 0
	return events
}

// Close destroys the channel, after its queues.
func (c *CompletionChannel) Close() error {
	return c.close(func() error {
		err := destroy("destroy_comp_channel", c.device.name, C.SV_CHANNEL, unsafe.Pointer(c.channel))
		if err == nil {
			c.channel = nil
		}
		return err
	})
}

// CQ is a completion queue.
type CQ struct {
	resource
	device  *Device
	channel *CompletionChannel
	cq      *C.struct_abi_cq
	size    int
	events  uint32 // read from the channel; the library waits for their acknowledgement before the queue ends
}

// NewCQ makes a queue for at least entries completions. More than it has room for make it fail, with an asynchronous
// event. channel may be nil. vector, below DeviceAttributes.CompletionVectors, chooses the interrupt.
func (d *Device) NewCQ(entries int, channel *CompletionChannel, vector int) (*CQ, error) {
	q := &CQ{device: d, channel: channel}
	uses := []*resource{&d.resource}
	var of unsafe.Pointer
	if channel != nil {
		if channel.device.context != d.context {
			return nil, fmt.Errorf("%w: create_cq: the completion channel is of %s (want %s)", stepvan.ErrInvalid, channel.device.name, d.name)
		}
		uses = append(uses, &channel.resource)
		of = unsafe.Pointer(channel.channel)
	}
	err := d.library.objects.create("create_cq", &q.resource, "completion queue of "+d.name, uses, func() error {
		var err error
		if q.cq, err = C.sv_create_cq(d.context, C.int(entries), of, C.int(vector)); q.cq == nil {
			return call("create_cq", d.name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.size = int(q.cq.cqe)
	q.announce()
	return q, nil
}

// announce lets events find the queue.
func (q *CQ) announce() {
	q.device.made.add(q.address(), q)
	if q.channel != nil {
		q.channel.add(q)
	}
}

func (q *CQ) address() uintptr { return uintptr(unsafe.Pointer(q.cq)) }

// Size is how many completions the queue has room for.
func (q *CQ) Size() int { return q.size }

// Arm has the next completion wake the channel; if solicited, only one of a message that its sender flagged Solicited,
// or that failed. A completion that came before may not wake it. So poll once more after Arm.
func (q *CQ) Arm(solicited bool) error {
	if q.cq == nil {
		return errCQClosed
	}
	only := C.int(0)
	if solicited {
		only = 1
	}
	return result("req_notify_cq", q.device.name, C.sv_arm(number(q.cq), only))
}

// Poll takes completions, at most as many as into has room for. Budget: one call of C, no allocation, no system call.
func (q *CQ) Poll(into *Completions) (int, error) {
	if q.cq == nil {
		return 0, errCQClosed
	}
	n := int(C.sv_poll(number(q.cq), number(into.first), C.int(into.room)))
	if n < 0 {
		into.n = 0
		return 0, failed("poll_cq", q.device.name, syscall.Errno(-n))
	}
	into.n = n
	return n, nil
}

// Close destroys the queue, after the queue pairs that use it.
func (q *CQ) Close() error {
	return q.close(func() error {
		if q.channel != nil {
			C.sv_ack_cq_events(q.cq, C.uint(q.channel.remove(q)))
		}
		q.device.made.remove(q.address())
		if err := destroy("destroy_cq", q.device.name, C.SV_CQ, unsafe.Pointer(q.cq)); err != nil {
			q.announce()
			return err
		}
		q.cq = nil
		return nil
	})
}

// Completions is room for a batch of completions, in memory of C.
type Completions struct {
	resource
	first *C.struct_abi_wc
	room  int
	n     int // of the last Poll
}

// NewCompletions makes room for n completions.
func (l *Library) NewCompletions(n int) (*Completions, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: completions: no room (got %d, want at least 1)", stepvan.ErrInvalid, n)
	}
	b := &Completions{room: n}
	err := l.objects.create("completions", &b.resource, "room for completions", nil, func() error {
		p, err := zeroed(n, C.sizeof_struct_abi_wc)
		b.first = (*C.struct_abi_wc)(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// At is a completion of the last Poll. i is below what that has returned.
func (b *Completions) At(i int) Completion {
	c := unsafe.Slice(b.first, b.n)[i]
	out := Completion{
		ID:     uint64(c.wr_id),
		Status: Status(c.status),
		Op:     CompletionOp(c.opcode),
		Vendor: uint32(c.vendor_err),
		Bytes:  uint32(c.byte_len),
		QP:     QPNumber(c.qp_num),
	}
	switch {
	case c.status != C.ABI_WC_SUCCESS:
	case c.wc_flags&C.ABI_WC_WITH_IMM != 0:
		out.Immediate, out.HasImmediate = networkOrder(uint32(c.imm_data)), true
	case c.wc_flags&C.ABI_WC_WITH_INV != 0:
		out.Invalidated = RemoteKey(c.imm_data)
	}
	return out
}

// Close frees the memory. The caller polls into b no more.
func (b *Completions) Close() error {
	return b.close(func() error {
		C.free(unsafe.Pointer(b.first))
		b.first, b.room, b.n = nil, 0, 0
		return nil
	})
}

// networkOrder turns a number of the machine into one of the network, and back. All machines that this runs on are
// little-endian.
func networkOrder(n uint32) uint32 { return bits.ReverseBytes32(n) }
