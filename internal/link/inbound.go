package link

import (
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Inbound is one message that has arrived, or that is arriving. Each byte of its payload came in one of three ways: it
// was read to where Handler.Place said, it is in Payload, or the peer has written it.
type Inbound struct {
	Session  *Session
	Header   wire.Header // of the whole message: Payload == Total, Offset == 0
	Meta     []byte      // until Receive returns
	Payload  []byte      // bytes that nobody placed or wrote, in memory of the van or of the pool; until Receive returns
	Received int64       // when the message was whole, ns of the trace clock
	User     any         // the handler's, from Place to Receive
	Refused  error       // Place refused; the payload was dropped
	// Written is how many bytes of the payload the peer has written into memory that was granted to it. The meta says
	// where they are, which is the peer's claim.
	Written uint64

	link   queueLink[Inbound]
	next   *Inbound // in inboundPool
	along  []byte   // memory for Payload that travelled with the heads of several pieces
	meta   []byte   // memory for Meta
	region *tensor.Region
	dst    [][]byte
	cursor van.Cursor // where the next piece begins in dst
	placed uint64
	got    uint64
}

// Release ends the use of m and its memory, and gives its credit back to the sender. Exactly once, by a
// handler that has kept m; any goroutine.
func (m *Inbound) Release() {
	t := m.Session.transport
	m.returnCredit()
	t.inbounds.put(m)
}

// releaseHere is Release for the driver. It needs no atomics for the memory of m.
func (m *Inbound) releaseHere() {
	t := m.Session.transport
	m.returnCredit()
	t.inbounds.putHere(m)
}

// returnCredit gives the credit back.
func (m *Inbound) returnCredit() {
	if s := m.Session; credited(m.Header.Channel) && m.Header.Total > 0 {
		s.acks.release(charge(m.Header.Total, uint64(s.transport.options.CreditBytes)))
	}
}

// place appends to dst the destinations of the next n bytes.
func (m *Inbound) place(dst [][]byte, n uint64) [][]byte {
	m.placed += n
	for n > 0 {
		p := m.cursor.Next(m.dst, int64(n))
		if len(p) > 0 {
			dst = append(dst, p)
		}
		n -= uint64(len(p))
	}
	return dst
}

// inboundPool holds unused Inbounds.
type inboundPool struct {
	memory   *tensor.Allocator
	free     *Inbound                // driver only
	released atomic.Pointer[Inbound] // on their way back to the driver
}

// takeFirst is take for a message that comes in pieces, or is placed. It copies meta, which the van takes back before
// the last piece.
func (x *inboundPool) takeFirst(s *Session, h *wire.Header, meta []byte) *Inbound {
	m := x.take(s, h)
	m.meta = append(m.meta[:0], meta...)
	m.Meta = m.meta
	return m
}

// take returns an unused Inbound for s. Driver only.
func (x *inboundPool) take(s *Session, h *wire.Header) *Inbound {
	m := x.free
	if m == nil {
		m = x.released.Swap(nil)
	}
	if m == nil {
		m = &Inbound{}
	}
	x.free = m.next
	m.next, m.Session, m.Header, m.dst = nil, s, *h, m.dst[:0]
	m.Header.Payload, m.Header.Offset = h.Total, 0
	m.cursor, m.placed, m.got, m.Received, m.Written = van.Cursor{}, 0, 0, 0, 0
	return m
}

// put takes m back for the driver. Any goroutine.
func (x *inboundPool) put(m *Inbound) {
	x.clean(m)
	for {
		m.next = x.released.Load()
		if x.released.CompareAndSwap(m.next, m) {
			return
		}
	}
}

// putHere takes m back. Driver only.
func (x *inboundPool) putHere(m *Inbound) {
	x.clean(m)
	m.next, x.free = x.free, m
}

// clean drops what m refers to.
func (x *inboundPool) clean(m *Inbound) {
	if m.region != nil {
		x.memory.Put(m.region)
		m.region = nil
	}
	m.dst = reuse.Slice(m.dst)
	m.along = m.along[:0]
	m.Meta, m.Payload, m.User, m.Session, m.Refused = nil, nil, nil, nil, nil
}

// maxControl bounds a message on a channel without credit, in bytes.
const maxControl = 64 << 20

// placePooled gives m pooled memory.
func (x *inboundPool) placePooled(m *Inbound, dst [][]byte) ([][]byte, error) {
	if !credited(m.Header.Channel) && m.Header.Total > maxControl {
		return dst, errs.Invalid("control message of %d bytes, limit %d", m.Header.Total, maxControl)
	}
	r, err := x.memory.Get(int(m.Header.Total))
	if err != nil {
		return dst, fmt.Errorf("no receive memory for %d bytes: %w", m.Header.Total, err)
	}
	m.region = r
	m.Payload = r.Bytes()[:m.Header.Total]
	return append(dst, m.Payload), nil
}
