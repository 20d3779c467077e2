package link

import (
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// frame is one van message: a piece of an Outbound, or a message of the link itself.
type frame struct {
	index   int       // in Session.frames, and OpID
	out     *Outbound // nil for the link's own
	seq     uint64    // 0 outside the sequence
	head    []byte
	segs    [][]byte
	targets []van.Target // of segs, or none
	size    uint64       // payload bytes
	last    bool         // of its Outbound
	sent    bool         // completed by the van
	acked   bool         // acknowledged by the peer
	next    *frame
}

// frameQueue holds the frames that the peer has not acknowledged, in order of sequence.
type frameQueue struct{ head, tail *frame }

func (q *frameQueue) push(f *frame) {
	if q.tail != nil {
		q.tail.next = f
	} else {
		q.head = f
	}
	q.tail = f
}

func (q *frameQueue) pop() *frame {
	f := q.head
	q.head = f.next
	if q.head == nil {
		q.tail = nil
	}
	f.next = nil
	return f
}

// newFrame takes an unused frame. Session.mu is held.
func (s *Session) newFrame() *frame {
	f := s.freeFrames
	if f == nil {
		f = &frame{index: len(s.frames), head: make([]byte, 0, 512)}
		s.frames = append(s.frames, f)
	} else {
		s.freeFrames = f.next
	}
	f.next, f.out, f.seq, f.size, f.last, f.sent, f.acked, f.segs = nil, nil, 0, 0, false, false, false, f.segs[:0]
	f.targets = f.targets[:0]
	return f
}

// dropFrame recycles f. Session.mu is held.
func (s *Session) dropFrame(f *frame) {
	f.segs = reuse.Slice(f.segs)
	f.out = nil
	f.next = s.freeFrames
	s.freeFrames = f
}

// encode fills f.head with h and meta, and the fields that every header of the session has. Session.mu is held.
func (s *Session) encode(f *frame, h *wire.Header, meta []byte) {
	h.Source, h.Incarnation = s.node.identity.Load().Node, s.incarnation
	h.Destination = s.peerNode
	h.Epoch = s.node.epoch.Load()
	h.Ack = s.received
	h.Credit = s.released.Load()
	f.head = append(f.head[:wire.HeaderSize], meta...)
	if s.caps.Sound {
		h.EncodeUnsummed(f.head, len(meta))
	} else {
		h.Encode(f.head, f.head[wire.HeaderSize:])
	}
}
