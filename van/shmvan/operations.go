package shmvan

import (
	"math/bits"
	"sync/atomic"

	"github.com/stepvan/stepvan/van"
)

// operations are those that were accepted and whose completion was not polled: a ring with one writer (Send, under
// connection.mu) and one reader (Poll). They complete in the order of acceptance.
type operations struct {
	list    []operation
	mask    uint64
	written atomic.Uint64
	read    atomic.Uint64
}

// operation is complete when the peer has done as much as the marks say.
type operation struct {
	id       van.OpID
	done     uint64 // messages whose source it has read
	consumed uint64 // bytes that it has consumed
	streamed uint64 // streams that have been written whole
	keep     [][]byte
}

func (q *operations) init(n int) {
	size := 1 << bits.Len(uint(n-1))
	q.list, q.mask = make([]operation, size), uint64(size-1)
}

// next is the entry for an operation that is about to be accepted, nil while the ring is full.
func (q *operations) next() *operation {
	w := q.written.Load()
	if w-q.read.Load() > q.mask {
		return nil
	}
	return &q.list[w&q.mask]
}

func (q *operations) accept() { q.written.Add(1) }

// left reports whether an operation has not been reported as complete.
func (q *operations) left() bool { return q.read.Load() != q.written.Load() }

// complete reports whether the operation depends on nothing any more.
func (o *operation) complete() bool { return o.done == 0 && o.consumed == 0 && o.streamed == 0 }

// complete reports the operations that are complete, and all of them once the connection has ended.
func (s *sender) complete(out *sink, ended bool) {
	q := &s.ops
	r, w := q.read.Load(), q.written.Load()
	if r == w {
		return
	}
	before := r
	if ended { // another goroutine may unmap the memory
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		s.conn.sendClosedLocked() // before this side gives a source back that the peer may be reading
	}
	for ; r != w && !out.full(); r++ {
		o := &q.list[r&q.mask]
		var err error
		if !s.finished(o) {
			if !ended {
				break
			}
			err = s.conn.endedError("send")
		}
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: s.conn.public, Op: o.id, Err: err})
		clear(o.keep)
	}
	if r != before {
		q.read.Store(r)
	}
}

// finished asks the peer's words only where an operation depends on them.
func (s *sender) finished(o *operation) bool {
	if o.complete() {
		return true
	}
	if !s.conn.mapped {
		return false
	}
	consumed := o.consumed
	if o.streamed > 0 {
		if o.streamed > s.streamed.Load() {
			return false
		}
		consumed = max(consumed, s.drained.Load())
	}
	s.out.edge.Consume()
	if consumed > 0 && s.out.peer.consumed.Load() < consumed {
		return false
	}
	return o.done == 0 || s.out.peer.done.Load() >= o.done
}
