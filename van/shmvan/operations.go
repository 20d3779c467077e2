package shmvan

import (
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// operations are those accepted whose completion was not polled: a ring with one writer (Send, under
// sendSide.mu) and one reader (Poll). They complete in the order of acceptance.
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
func (tx *sendSide) complete(out *sink, over bool) {
	q := &tx.ops
	r, w := q.read.Load(), q.written.Load()
	if r == w {
		return
	}
	before := r
	if over { // somebody else may let go of the memory
		tx.mu.Lock()
		defer tx.mu.Unlock()
		tx.e.announceClose() // before a source is given back that the peer may be reading
	}
	for ; r != w && !out.full(); r++ {
		o := &q.list[r&q.mask]
		var err error
		if !tx.finished(o) {
			if !over {
				break
			}
			err = tx.e.failure("send")
		}
		out.emit(van.Event{Kind: van.EventCompletion, Endpoint: tx.e.public(), Op: o.id, Err: err})
		clear(o.keep)
	}
	if r != before {
		q.read.Store(r)
	}
}

// over reports whether the operation depends on nothing any more.
func (o *operation) over() bool { return o.done == 0 && o.consumed == 0 && o.streamed == 0 }

// finished asks the peer's words only where an operation depends on them.
func (tx *sendSide) finished(o *operation) bool {
	if o.over() {
		return true
	}
	if !tx.mapped {
		return false
	}
	consumed := o.consumed
	if o.streamed > 0 {
		if o.streamed > tx.streamed.Load() {
			return false
		}
		consumed = max(consumed, tx.drained.Load())
	}
	tx.out.edge.Consume()
	if consumed > 0 && tx.e.peerWords.consumed.Load() < consumed {
		return false
	}
	return o.done == 0 || tx.e.peerWords.done.Load() >= o.done
}

func (tx *sendSide) stillMapped() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.mapped
}

// checkProgress checks the counters of the peer against what this side has sent. Only Poll calls it.
func (tx *sendSide) checkProgress() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if d := tx.e.peerWords.done.Load(); d > tx.sourced {
		return &stepvan.ProtocolError{Field: "done", Reason: "the peer claims to have read what was never sent"}
	}
	return tx.out.look()
}
