package server

import (
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// stage is where a request is on its way.
type stage uint8

const (
	free      stage = iota
	receiving       // its payload is being read
	queued          // whole, for GetBatch to take
	refused         // in the queue in place of a request that was refused: see round.go
	handed          // taken, for Respond to answer
	answering       // an answer is being offered to the link
)

// incoming is one request. Its slot stays; the generation tells its users apart.
// Server.mu guards it until it is handed out; after that its lists do not change until the respond.
type incoming struct {
	next       *incoming // in the queue, or in the list of free ones
	slot       uint32
	generation atomic.Uint32
	stage      stage

	from    *remote
	session *link.Session
	id      uint64 // the worker's, to answer with
	traced  bool
	bytes   int64 // that are pushed
	meta    wire.Request
	pushes  []tensor.Tensor
	keys    []tensor.Key
	pulls   []Pull
	chunks  []*chunk       // that hold the pushes; nil for those in pooled memory
	pool    *tensor.Region // holds the others; nil when there are none
	late    []late         // pushes that were written into chunks which have ended
	held    *link.Inbound  // keeps the credit of pooled memory
	views   []*view        // of pushes that the worker has left where they are

	server *Server
	// Of who asks for memory, which Request.visit begins: all of them raise visited before they look whether the request
	// is live, so that the end of a request that nobody asked needs no lock. One that was asked ends when none is there.
	visited atomic.Bool
	outMu   sync.Mutex // never held while waiting; taken after Server.mu
	outs    []out      // one per pull, or none yet
	owned   owned

	received  int64
	processed int64

	reason error // of a refusal
	early  bool  // AnswerPushes has answered it
}

// RequestID names a request that GetBatch handed out, until Respond.
type RequestID uint64

func (in *incoming) handler() RequestID {
	return RequestID(in.generation.Load())<<32 | RequestID(in.slot)
}

// Pull is what a worker wants to have for one key.
type Pull struct {
	Key      tensor.Key
	Bytes    int64 // that the response must have; at most, when Variable
	DType    tensor.DType
	Shape    tensor.Shape // of the worker's pull tensor
	Variable bool
}

// Request is one worker's request in a batch. A small value; what its methods
// return belongs to the server until the Respond to Handler, and is nil afterwards.
//
// In and Out may be called by any goroutine at any time, and say stepvan.ErrStale after the respond. The lists that Pushes,
// PushKeys and Pulls return are the request's own, used again by a later one: any number of goroutines may call these and read
// the lists, but none while Respond is under way, or a list after it.
type Request struct {
	ID     RequestID
	Worker stepvan.Rank
	in     *incoming
}

func (r Request) live() bool { return r.in != nil && r.in.handler() == r.ID }

// Pushes returns the pushed tensors, in the worker's order, with the pushed types
// and shapes: views of registered chunks, or of pooled memory. They are the program's to write to,
// until the respond: what the worker has left in its own memory is copied by the first call. In does without.
func (r Request) Pushes() []tensor.Tensor {
	switch {
	case !r.live():
		return nil
	case len(r.in.views) > 0:
		return r.owned()
	}
	return r.in.pushes
}

// PushKeys returns the keys of Pushes.
func (r Request) PushKeys() []tensor.Key {
	if !r.live() {
		return nil
	}
	return r.in.keys
}

// Pulls returns what the response must hold, in order.
func (r Request) Pulls() []Pull {
	if !r.live() {
		return nil
	}
	return r.in.pulls
}

func (in *incoming) firstKey() uint64 {
	switch {
	case len(in.keys) > 0:
		return uint64(in.keys[0])
	case len(in.pulls) > 0:
		return uint64(in.pulls[0].Key)
	}
	return 0
}

// take returns a free request. Under s.mu.
func (s *Server) take() *incoming {
	s.unanswered++
	in := s.freeRequests
	if in == nil {
		in = &incoming{slot: uint32(len(s.requests)), server: s}
		in.generation.Store(1)
		s.requests = append(s.requests, in)
		return in
	}
	s.freeRequests, in.next = in.next, nil
	return in
}

// recycle ends a request: its handler is stale, its chunks may be written again.
// Under s.mu. It returns what the caller must release afterwards, without the lock.
func (s *Server) recycle(in *incoming) *link.Inbound {
	held := in.held
	s.disown(in)
	if in.generation.Add(1) == 0 {
		in.generation.Store(1) // 0 is the generation of no handler
	}
	in.closeViews()
	if in.pool != nil {
		s.opt.Memory.Put(in.pool)
	}
	in.pushes, in.late = reuse.Slice(in.pushes), reuse.Slice(in.late)
	in.keys, in.pulls, in.chunks = in.keys[:0], in.pulls[:0], in.chunks[:0]
	in.from, in.session, in.pool, in.held, in.reason, in.stage, in.bytes, in.early = nil, nil, nil, nil, nil, free, 0, false
	in.next, s.freeRequests = s.freeRequests, in
	s.unanswered--
	return held
}

// disown gives the chunks back, but for those that a later request holds already.
// A closed server has no use for them.
func (s *Server) disown(in *incoming) {
	for i, c := range in.chunks {
		if c != nil && c.user == in {
			c.user = nil
			if s.closed && c.installed() {
				s.dismiss([]*chunk{c}) // the news goes with the next message to the worker, or is needless
			}
		}
		in.chunks[i] = nil
	}
}

// find returns the request with handler h. Under s.mu.
func (s *Server) find(h RequestID) *incoming {
	slot := uint32(h)
	if uint64(slot) >= uint64(len(s.requests)) {
		return nil
	}
	if in := s.requests[slot]; in.handler() == h && in.stage >= handed {
		return in
	}
	return nil
}
