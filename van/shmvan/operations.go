package shmvan

import (
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// operations are those accepted whose completion was not polled: a ring with one writer (Send, under
// endpoint.mu) and one reader (Poll). They complete in the order of acceptance.
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
	size := 1
	for size < n {
		size *= 2
	}
	q.list, q.mask = make([]operation, size), uint64(size-1)
}

// next is the entry for an operation that is about to be accepted, nil when there is none.
func (q *operations) next() *operation {
	w := q.written.Load()
	if w-q.read.Load() > q.mask {
		return nil
	}
	return &q.list[w&q.mask]
}

func (q *operations) accept() { q.written.Add(1) }

// complete reports the operations that are over, all of them once the connection is.
func (e *endpoint) complete(out *sink, over bool) {
	q := &e.ops
	r, w := q.read.Load(), q.written.Load()
	if r == w {
		return
	}
	before := r
	if over { // somebody else may let go of the memory
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sendClosed() // before a source is given back that the peer may be reading
	}
	for ; r != w && !out.full(); r++ {
		o := &q.list[r&q.mask]
		var err error
		if !e.finished(o) {
			if !over {
				break
			}
			err = e.endedError("send")
		}
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: e.public(), Op: o.id, Err: err})
		clear(o.keep)
	}
	if r != before {
		q.read.Store(r)
	}
}

// over reports whether the operation depends on nothing any more.
func (o *operation) over() bool { return o.done == 0 && o.consumed == 0 && o.streamed == 0 }

// finished asks the peer's words only where an operation depends on them.
func (e *endpoint) finished(o *operation) bool {
	if o.over() {
		return true
	}
	if !e.mapped {
		return false
	}
	consumed := o.consumed
	if o.streamed > 0 {
		if o.streamed > e.streamed.Load() {
			return false
		}
		consumed = max(consumed, e.drained.Load())
	}
	e.out.edge.Consume()
	if consumed > 0 && e.peerWords.consumed.Load() < consumed {
		return false
	}
	return o.done == 0 || e.peerWords.done.Load() >= o.done
}

func (e *endpoint) stillMapped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mapped
}

// honest checks what the peer says to have done against what was sent. Poller only.
func (e *endpoint) checkPeerWords() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.peerWords.done.Load(); d > e.sourced {
		return &stepvan.ProtocolError{Field: "done", Reason: "the peer claims to have read what was never sent"}
	}
	return e.out.look()
}
