package server

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// RequestID names a request that GetBatch handed out, until its Respond.
type RequestID uint64

// Pull describes what a worker pulls for one key.
type Pull struct {
	Key      tensor.Key
	Bytes    int64 // that the response must have; at most, when Variable
	DType    tensor.DType
	Shape    tensor.Shape // of the worker's pull tensor
	Variable bool
}

// Request is one worker's request in a batch. It is a small value. What its methods return belongs to the server until
// the Respond to ID. Afterwards they return nil.
//
// Any goroutine may call In and Out at any time; after the respond they return stepvan.ErrStale. Pushes, PushKeys and
// Pulls return lists of the request itself, which a later request uses again. Any number of goroutines may call these
// methods and read the lists. None may do so while Respond runs, or read a list after it.
type Request struct {
	ID     RequestID
	Worker stepvan.Rank
	slot   *requestSlot
}

func (r Request) live() bool {
	return r.slot != nil && r.slot.server.requests.slots.Peek(slots.ID(r.ID)) != nil
}

// Pushes returns the pushed tensors in the worker's order, with the pushed types and shapes. They are views of
// registered chunks or of pooled memory. The program may write to them until the respond. The first call copies the
// pushes that the worker has left in its own memory; [Request.In] does not copy them.
func (r Request) Pushes() []tensor.Tensor {
	switch {
	case !r.live():
		return nil
	case len(r.slot.views) > 0:
		return r.copiedPushes()
	}
	return r.slot.pushes
}

// PushKeys returns the keys of Pushes.
func (r Request) PushKeys() []tensor.Key {
	if !r.live() {
		return nil
	}
	return r.slot.keys
}

// Pulls returns what the response must hold, in order.
func (r Request) Pulls() []Pull {
	if !r.live() {
		return nil
	}
	return r.slot.pulls
}

// requestSlot holds one request at a time, and is used again. Server.mu guards it until the request is handed out. From
// then on its lists do not change until the respond.
type requestSlot struct {
	id     slots.ID
	next   *requestSlot // in the queue
	state  requestState
	server *Server

	from        *workerPeer
	session     *link.Session
	number      uint64 // the worker's, which the response names
	traced      bool
	pushedBytes int64
	touched     int64 // bytes that the worker has read or written for its pushes
	alone       bool  // in its batch
	received    int64 // when, for the trace
	processed   int64
	refusal     error // of a refused request

	meta   wire.Request
	pushes []tensor.Tensor
	keys   []tensor.Key
	pulls  []Pull
	chunks []*chunk       // that hold the pushes; nil for those in pooled memory
	pool   *tensor.Region // holds the other pushes; nil when every push has a chunk
	late   []latePush
	held   *link.Inbound // keeps the credit of pooled memory
	views  []*workerView // of pushes in the worker's memory
	handed handedMemory
}

func (r *requestSlot) firstKey() uint64 {
	switch {
	case len(r.keys) > 0:
		return uint64(r.keys[0])
	case len(r.pulls) > 0:
		return uint64(r.pulls[0].Key)
	}
	return 0
}

// requestTable has the slots of all requests. Server.mu guards it.
type requestTable struct {
	s     *Server
	slots slots.Table[requestSlot]
}

// take returns a slot for a request that begins with this event.
func (t *requestTable) take(begin requestEvent) *requestSlot {
	id, r := t.slots.Take()
	if r.server == nil { // the first use of the slot
		r.server, r.state = t.s, requestFree
	}
	r.id = id
	r.on(begin)
	return r
}

// recycle ends a request: its ID is stale, and its chunks may be written again. It returns the message that the caller
// must release without the lock, or nil.
func (t *requestTable) recycle(r *requestSlot) *link.Inbound {
	held := r.held
	t.releaseChunks(r)
	t.slots.Free(r.id)
	r.closeViews()
	if r.pool != nil {
		t.s.opt.Memory.Put(r.pool)
	}
	r.releaseLate()
	r.pushes, r.late = reuse.Slice(r.pushes), reuse.Slice(r.late)
	r.keys, r.pulls, r.chunks = r.keys[:0], r.pulls[:0], r.chunks[:0]
	r.from, r.session, r.pool, r.held, r.refusal, r.pushedBytes, r.touched = nil, nil, nil, nil, nil, 0, 0
	r.on(eventEnd)
	return held
}

// releaseChunks frees the chunks for the next push, except those that a later request holds already. A closed server
// ends them.
func (t *requestTable) releaseChunks(r *requestSlot) {
	for i, c := range r.chunks {
		if c != nil && c.user == r {
			c.user = nil
			if t.s.closed && c.registered() {
				var ignored deferredWork // the news goes with the next message to the worker, or nobody needs it
				t.s.buffers.dismiss([]*chunk{c}, &ignored)
			}
		}
		r.chunks[i] = nil
	}
}

// find returns the request that a program holds under this ID, or nil.
func (t *requestTable) find(id RequestID) *requestSlot {
	if r := t.slots.Find(slots.ID(id)); r != nil && r.state >= requestTaken {
		return r
	}
	return nil
}

// latePush was written into a chunk that has ended meanwhile.
type latePush struct {
	accelerator tensor.Tensor // what holds it there, retained until it is copied; the zero Tensor for the host
	index       int
	mem         []byte
}
