package rdma

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/verbs"
)

// rail is a queue pair of an endpoint, with its slots, buffers and credit.
type rail struct {
	e       *endpoint
	conn    *connection
	index   int    // among the paths of the connection
	attempt uint16 // to connect that path
	number  uint32 // in the names of its requests

	// The sending side. Guarded by endpoint.mu, except the credit.
	queue     sendQueue
	credit    credit
	teller    teller
	slotBytes int  // that fit into a slot of the peer and a buffer of this side
	asked     bool // the peer was asked to wake this side
	flight    flight
	device    int // of the peer, among those whose keys it tells
	loss      loss

	// The receiving side. The poller's, except outstanding.
	ready       atomic.Bool // the peer has said hello, so what it takes is known; endpoint.mu guards changes
	messages    uint32      // message slots that have come
	records     uint32      // records that have come
	held        int         // of those, that were not taken
	again       again
	outstanding atomic.Int32 // receives that have not completed
}

func newRail(e *endpoint, c *connection, number uint32, g *greeting) *rail {
	o := &e.v.opt
	r := &rail{e: e, conn: c, number: number, index: g.path, attempt: g.attempt()}
	r.queue.init(r, o)
	if e.several() {
		r.flight.init(c.sends, r.queue.requests.depth)
	}
	r.teller.half = uint32(o.Slots / 2)
	r.again.slots = make([]int, 0, c.receives)
	r.outstanding.Store(int32(c.receives))
	return r
}

// takeHello takes the peer's hello. endpoint.mu is held.
func (r *rail) takeHello(h hello) error {
	if keys := max(1, h.devices); r.e.out.peerKeys == 0 {
		r.e.out.peerKeys = keys
	} else if keys != r.e.out.peerKeys {
		return errs.Protocol("hello", 30, "%d devices (want %d, as over the other rails)", h.devices, r.e.out.peerKeys)
	}
	r.slotBytes = min(r.conn.slotBytes, h.slotBytes)
	r.credit.messages.size, r.credit.records.size = uint32(h.messages), uint32(h.records)
	r.teller.word, r.teller.key = h.word, verbs.RemoteKey(h.key)
	if r.conn.ring != nil && h.ring != 0 {
		r.queue.ring = peerRing{h.ring, verbs.RemoteKey(h.ringKey), uint32(h.messages), uint32(h.slotBytes)}
	}
	r.device = h.device
	if r.e.v.opt.Paths.SplitLAG && r.e.v.opt.Paths.Count > 1 {
		// One of the two ports of a bond. Else the device chooses by the numbers of the queue pairs.
		_ = r.conn.qp.UseLAGPort(r.index%2 + 1) // devices of other drivers cannot
	}
	r.ready.Store(true)
	return nil
}

// sayHello sends the first message of the connection, unless that has ended already.
func (r *rail) sayHello() {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.e.state.Load()&(failed|closed) == 0 {
		r.queue.postHello()
	}
}

// takeSlot returns a buffer for a slot of a message, or -1 when there is no credit, no room, or no buffer.
func (r *rail) takeSlot() int {
	if r.credit.messages.left() <= 0 {
		if r.readWord(); r.credit.messages.left() <= 0 {
			return -1
		}
	}
	if r.queue.requests.room() <= 0 {
		return -1
	}
	if r.flight.on {
		if r.reclaim(); r.queue.buffers.few() {
			r.readWord()
			r.reclaim()
		}
		if r.queue.buffers.few() {
			return -1
		}
	}
	return r.queue.takeBuffer()
}

// reclaim frees what the peer has said to have. endpoint.mu is held.
func (r *rail) reclaim() {
	r.flight.reclaim(r.credit.messages.back.Load(), &r.queue.buffers, r.queue.requests.retired)
	r.flight.forget(r.credit.records.back.Load())
}

// usable reports whether messages may go over the rail.
func (r *rail) usable() bool { return r.ready.Load() && !r.loss.begun.Load() }

// readWord takes what the peer has written of credit. endpoint.mu is held.
func (r *rail) readWord() {
	if err := r.credit.learnWord(r.conn.word(atHeard).Load()); err != nil {
		r.e.fail("receive", err)
	}
}

// onSent takes the completion of a send request. The poller's.
func (r *rail) onSent(c *verbs.Completion, number uint32) {
	if c.Status != verbs.StatusSuccess {
		r.onFailure(c, "send")
		return
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	n := r.queue.requests.retire(number)
	r.queue.buffers.retire(n)
	r.flight.complete(n, &r.e.out.ops)
	r.e.out.ops.complete(n)
	r.e.out.endWindows(n)
}

// onFailure takes a completion in error. Flushed requests follow from an error, or from the end, which may be reported
// a moment later. The undertaker waits for it.
func (r *rail) onFailure(c *verbs.Completion, op string) {
	if r.loss.begun.Load() || r.e.state.Load()&(failed|closed) != 0 {
		return
	}
	err := lossOf(c.Err(op, r.conn.device.name()))
	switch {
	case c.Status != verbs.StatusFlushed:
		r.fail(op, r.conn.explain(err))
	case r.e.several():
		r.fail(op, err)
	case r.e.flushed.Load() == nil && r.e.flushed.CompareAndSwap(nil, &err):
		r.e.v.undertaker.add(r.e)
	}
}

// postAgain posts the slots that were taken, when they are enough for a doorbell. It reports whether the peer may have
// to be told. The poller's.
func (r *rail) postAgain() bool {
	n := len(r.again.slots)
	wake := r.teller.wake.Load()
	few := n < r.conn.receives/4 && r.again.records < recordSlots/2
	if n == 0 || few && !wake || !r.e.enterBefore(failed|closed) {
		return wake
	}
	defer r.e.leave() // the queue pair is destroyed behind this
	if r.loss.begun.Load() {
		return wake
	}
	chain := r.e.v.poller.receives
	chain.Reset()
	for _, slot := range r.again.slots {
		if chain.Room() == 0 {
			r.postReceives(chain)
		}
		if err := chain.Add(receiveID(r.number, slot), r.conn.slotSegment(slot)); err != nil {
			r.fail("receive", err)
		}
	}
	r.postReceives(chain)
	r.teller.messages.Add(r.again.messages)
	r.teller.records.Add(r.again.records)
	r.again = again{slots: r.again.slots[:0]}
	return true
}

func (r *rail) postReceives(chain *verbs.ReceiveChain) {
	r.outstanding.Add(int32(chain.Len()))
	posted, err := r.conn.qp.PostReceive(chain)
	r.outstanding.Add(int32(posted - chain.Len()))
	chain.Reset()
	if err != nil {
		r.fail("receive", err)
	}
}

// wakeDue reports whether a peer that asked for it can be woken, once slots are posted again. The poller's.
func (r *rail) wakeDue() bool { return r.teller.wakeDue() && len(r.again.slots) > 0 }

// again are the slots to be posted again.
type again struct {
	slots             []int
	messages, records uint32
}
