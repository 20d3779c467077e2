package rdma

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/verbs"
)

// connection is a queue pair with its pinned memory:
//
//	| page of words | slots of received messages and records | buffers of sends | ring, with Options.Immediate |
type connection struct {
	device   *device
	port     int // of the device
	id       *verbs.ID
	qp       *verbs.QP
	queue    *completionQueue
	reserved int // of queue
	memory   *shm.Memory
	words    *verbs.MR // the page, which the peer writes to
	slots    *verbs.MR // the rest
	ring     *verbs.MR // that the peer writes messages to, or nil
	chain    *verbs.SendChain

	completions atomic.Uint64 // that were polled; only the poller counts

	slotBytes, receives, sends, rings int // bytes of a slot; how many of each
	devices                           int // whose keys this side tells, where there may be several rails; else 0
}

// Offsets in the page of words. What the peer writes and what this side writes are apart by a line.
const (
	pageBytes = 4 << 10
	atHeard   = 0              // credit that the peer has told: two counts of 32 bits
	atTold    = shm.LineBytes  // what this side tells, the source of the same at the peer
	chainLen  = 64             // requests in a chain
	chainSegs = chainLen + 128 // their segments
)

// newConnection makes the queue pair of id, and posts its receives.
func (v *rdmaVan) newConnection(id *verbs.ID, e uint32, paths int) (*connection, error) {
	d := v.deviceNamed(id.DeviceName())
	if d == nil {
		return nil, fmt.Errorf("connect: %s: this van does not use the device: %w", id.DeviceName(), stepvan.ErrNotSupported)
	}
	o := &v.opt
	c := &connection{device: d, id: id, port: id.Port(), slotBytes: o.SlotBytes, receives: o.Slots + recordSlots, sends: o.SendSlots}
	if paths > 1 {
		c.sends = min(o.Slots+o.SendSlots, maxBuffers) // what the peer may not have stays in its buffer
		c.devices = len(v.devices)
	}
	if o.Immediate {
		c.rings = o.Slots
	}
	if err := c.build(v, e); err != nil {
		c.close(v)
		return nil, err
	}
	return c, nil
}

func (c *connection) build(v *rdmaVan, e uint32) (err error) {
	if err := c.allocate(); err != nil {
		return err
	}
	var made bool
	if c.queue, made, err = v.members.reserve(c.device, v.opt.SendRequests+c.receives); err != nil {
		return err
	}
	c.reserved = v.opt.SendRequests + c.receives
	if made {
		v.wake() // the driver arms the new queue as well
	}
	if c.chain, err = c.device.library.NewSendChain(chainLen, chainSegs); err != nil {
		return err
	}
	if err := c.makeQueuePair(&v.opt); err != nil {
		return err
	}
	return c.postAll(e)
}

func (c *connection) allocate() (err error) {
	own := pageBytes + (c.receives+c.sends)*c.slotBytes
	if c.memory, err = shm.Anonymous(int64(own + c.rings*c.slotBytes)); err != nil {
		return err
	}
	page, rest, ring := c.memory.Bytes()[:pageBytes], c.memory.Bytes()[pageBytes:own], c.memory.Bytes()[own:]
	if c.rings > 0 {
		if c.ring, err = c.device.pd.Register(addressOf(ring), uint64(len(ring)), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
			return err
		}
	}
	if c.words, err = c.device.pd.Register(addressOf(page), uint64(len(page)), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return err
	}
	access := verbs.LocalWrite
	if c.device.iWARP {
		access |= verbs.RemoteWrite // which the destination of a read needs there
	}
	c.slots, err = c.device.pd.Register(addressOf(rest), uint64(len(rest)), access)
	return err
}

// makeQueuePair asks for less inline data where the device does not have as much.
func (c *connection) makeQueuePair(o *Options) (err error) {
	q := verbs.QPOptions{
		SendCQ: c.queue.cq, ReceiveCQ: c.queue.cq, Inline: o.Inline,
		SendRequests: min(o.SendRequests, c.device.attributes.QPRequests), ReceiveRequests: c.receives,
		SendSegments: 1, ReceiveSegments: 1,
	}
	for {
		if c.qp, err = c.id.NewQP(c.device.pd, q); err == nil || q.Inline == 0 {
			return err
		}
		q.Inline /= 2
		if q.Inline < 64 {
			q.Inline = 0
		}
	}
}

// postAll posts a receive for each slot.
func (c *connection) postAll(e uint32) error {
	chain, err := c.device.library.NewReceiveChain(c.receives, c.receives)
	if err != nil {
		return err
	}
	defer func() { _ = chain.Close() }()
	for i := range c.receives {
		if err := chain.Add(receiveID(e, i), c.slotSegment(i)); err != nil {
			return err
		}
	}
	_, err = c.qp.PostReceive(chain)
	return err
}

// slot is the memory of a slot: first those that are received, then the buffers of sends.
func (c *connection) slot(i int) []byte {
	at := pageBytes + i*c.slotBytes
	return c.memory.Bytes()[at : at+c.slotBytes : at+c.slotBytes]
}

func (c *connection) slotSegment(i int) verbs.Segment {
	return verbs.Segment{Addr: addressOf(c.slot(i)), Length: uint32(c.slotBytes), Key: c.slots.LocalKey()}
}

// word is one of the page of words.
func (c *connection) word(at int) *atomic.Uint64 { return shm.Word64(c.memory.Bytes(), at) }

// pinned is how many bytes the connection itself has pinned.
func (c *connection) pinned() uint64 {
	return uint64(pageBytes + (c.receives+c.sends+c.rings)*c.slotBytes)
}

// hello is what this side tells the peer of the connection.
func (c *connection) hello() hello {
	h := hello{
		slotBytes: c.slotBytes, messages: c.receives - recordSlots, records: recordSlots,
		word: uint64(addressOf(c.memory.Bytes()[atHeard:])), key: uint32(c.words.RemoteKey()),
	}
	if c.devices > 0 {
		h.device, h.devices = c.device.index, c.devices
	}
	if c.ring != nil {
		h.ring, h.ringKey = uint64(c.ring.Addr()), uint32(c.ring.RemoteKey())
	}
	return h
}

// ringSlot is the memory of a slot of the ring.
func (c *connection) ringSlot(i int) []byte { return c.slot(c.receives + c.sends + i) }

// destroy ends the queue pair and the connection. The memory stays, since received messages may be in it. It may block.
func (c *connection) destroy() {
	_ = c.qp.Close()
	_ = c.id.Close()
}

// free gives the memory back, after destroy.
func (c *connection) free() {
	for _, m := range []*verbs.MR{c.words, c.slots, c.ring} {
		if m != nil {
			_ = m.Close()
		}
	}
	if c.chain != nil {
		_ = c.chain.Close()
	}
	if c.memory != nil {
		_ = c.memory.Close()
	}
}

// close frees a connection that no endpoint uses. Its ID stays.
func (c *connection) close(v *rdmaVan) {
	if c.qp != nil {
		_ = c.qp.Close()
	}
	v.members.unreserve(c)
	c.free()
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// The number of a request names its endpoint, whether it is a receive, and which one it is.
func receiveID(e uint32, slot int) uint64   { return uint64(e)<<32 | 1<<31 | uint64(slot) }
func sendID(e uint32, number uint32) uint64 { return uint64(e)<<32 | uint64(number&numberMask) }

const numberMask = 1<<31 - 1

// splitID is the opposite of receiveID and sendID.
func splitID(id uint64) (e uint32, receive bool, number uint32) {
	return uint32(id >> 32), id>>31&1 != 0, uint32(id) & numberMask
}
