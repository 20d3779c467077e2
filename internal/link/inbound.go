package link

import (
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// Inbound is one message received, or on its way in.
type Inbound struct {
	Session  *Session
	Header   wire.Header // of the whole message: Payload == Total, Offset == 0
	Meta     []byte      // until Release
	Data     []byte      // pooled memory, when the handler left the placement to the link; until Release
	Received int64       // when the message was whole, ns of the trace clock
	User     any         // the handler's, from Place to Deliver
	Refused  error       // Place refused; the payload was dropped
	// Written says that the peer has written the payload into memory that was granted to it, and
	// Place was not called. Where it is the meta says, which is the peer's claim.
	Written bool

	next    *Inbound
	region  *tensor.Region
	dst     [][]byte
	segment int // where the next piece begins in dst
	inside  int
	placed  uint64
	got     uint64
}

// Release ends the use of m and its memory, and gives its credit back to the sender.
// Exactly once, after Deliver; any goroutine.
func (m *Inbound) Release() {
	n := m.Session.node
	m.end()
	n.recycle(m)
}

// ReleaseHere is Release for the driver: inside a call of the Handler. It needs no atomics for the memory of m.
func (m *Inbound) ReleaseHere() {
	n := m.Session.node
	m.end()
	n.clean(m)
	m.next = n.inbounds
	n.inbounds = m
}

// end gives the credit back.
func (m *Inbound) end() {
	if s := m.Session; credited(m.Header.Channel) && m.Header.Total > 0 {
		s.giveCredit(charge(m.Header.Total, uint64(s.node.creditBytes)))
	}
}

// place appends to dst the destinations of the next n bytes.
func (m *Inbound) place(dst [][]byte, n uint64) [][]byte {
	m.placed += n
	for n > 0 {
		seg := m.dst[m.segment][m.inside:]
		if uint64(len(seg)) > n {
			seg = seg[:n]
		}
		if len(seg) > 0 {
			dst = append(dst, seg)
		}
		n -= uint64(len(seg))
		m.inside += len(seg)
		if m.inside == len(m.dst[m.segment]) {
			m.segment, m.inside = m.segment+1, 0
		}
	}
	return dst
}

// inboundQueue holds the messages of a channel that are placed and not yet whole, oldest first.
type inboundQueue struct{ head, tail *Inbound }

func (q *inboundQueue) push(m *Inbound) {
	if q.tail != nil {
		q.tail.next = m
	} else {
		q.head = m
	}
	q.tail = m
}

func (q *inboundQueue) pop() {
	m := q.head
	q.head = m.next
	if q.head == nil {
		q.tail = nil
	}
	m.next = nil
}

// take returns an unused Inbound for s. Driver only.
func (n *Transport) take(s *Session, h *wire.Header, meta []byte) *Inbound {
	m := n.borrow(s, h)
	m.Meta = append(m.Meta, meta...)
	return m
}

// borrow is take without the meta.
func (n *Transport) borrow(s *Session, h *wire.Header) *Inbound {
	m := n.inbounds
	if m == nil {
		m = n.released.Swap(nil)
	}
	if m == nil {
		m = &Inbound{}
	}
	n.inbounds = m.next
	m.next, m.Session, m.Header, m.Meta, m.dst = nil, s, *h, m.Meta[:0], m.dst[:0]
	m.Header.Payload, m.Header.Offset = h.Total, 0
	m.segment, m.inside, m.placed, m.got, m.Received, m.Written = 0, 0, 0, 0, 0, false
	return m
}

// recycle takes m back for the driver. Any goroutine.
func (n *Transport) recycle(m *Inbound) {
	n.clean(m)
	for {
		m.next = n.released.Load()
		if n.released.CompareAndSwap(m.next, m) {
			return
		}
	}
}

// clean lets go of what m holds.
func (n *Transport) clean(m *Inbound) {
	if m.region != nil {
		n.memory.Put(m.region)
		m.region = nil
	}
	m.dst = reuse.Slice(m.dst)
	m.User, m.Data, m.Session, m.Refused = nil, nil, nil, nil
}
