package vantest

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// shape describes a message to send.
type shape struct {
	size     int // bytes of payload
	segments int // number of segments, 1 when 0
	meta     int // bytes of meta
	target   []van.Target
	raw      bool  // the van is not asked to register the payload
	viewed   bool  // the sender writes to the target through views, before Send
	halves   bool  // two segments of equal length
	cuts     []int // the lengths of the segments, together size
	spare    bool  // with memory to spare, so that the source may be overwritten after Send
}

func (c shape) String() string {
	return fmt.Sprintf("Send of %d bytes in %d segments with %d of meta", c.size, max(c.segments, 1), c.meta)
}

// times is n repetitions of shapes.
func times(n int, shapes ...shape) []shape { return slices.Repeat(shapes, n) }

// mix is n shapes of random small and, now and then, larger sizes.
func (t *trial) mix(n, large int) []shape {
	list := make([]shape, n)
	for i := range list {
		c := shape{size: t.rng.IntN(300), segments: 1 + t.rng.IntN(4), meta: t.rng.IntN(100)}
		switch t.rng.IntN(16) {
		case 0:
			c.size = 0
		case 1:
			c.size = t.rng.IntN(large)
		}
		list[i] = c
	}
	return list
}

// compose makes the next message, and returns the memory that is its source.
func (o *outgoing) compose(c shape) (m *van.Message, source [][]byte) {
	payload := o.payloadFor(c)
	var segments [][]byte
	switch {
	case len(c.cuts) > 0:
		for rest := payload; len(segments) < len(c.cuts); {
			n := c.cuts[len(segments)]
			segments, rest = append(segments, rest[:n:n]), rest[n:]
		}
	case c.halves:
		segments = [][]byte{payload[:c.size/2], payload[c.size/2:]}
	case c.segments > 1:
		segments = cutUp(payload, c.segments, o.rng)
	case c.size > 0:
		segments = [][]byte{payload}
	}
	m = &van.Message{Head: head(o.salt, o.next, c.meta, uint64(c.size)), Target: slices.Clone(c.target), Payload: segments}
	if !c.spare {
		return m, append([][]byte{m.Head}, segments...) // the van may not keep m.Payload
	}
	m.Spare = make([]byte, c.size)
	paint(junk, m.Spare)
	return m, [][]byte{m.Head, m.Spare}
}

// payloadFor is the payload of the next message. One that the van refused is offered again as it is. A queue may stay
// full for thousands of attempts, and filling megabytes for each costs more than the rest of the suite. What has
// targets is made anew, since some vans register it for each attempt.
func (o *outgoing) payloadFor(c shape) []byte {
	if o.refused != nil && len(o.refused) == c.size && len(c.target) == 0 {
		return o.refused
	}
	payload := make([]byte, c.size)
	payloadOf(o.salt, o.next).fill(payload)
	o.refused = nil
	if len(c.target) == 0 {
		o.refused = payload
	}
	return payload
}

// head encodes the header of a message, and the meta that belongs to its sequence.
func head(salt, sequence uint64, meta int, payload uint64) []byte {
	h := wire.Header{Kind: wire.KindData, Sequence: sequence, Request: salt, Payload: payload, Total: payload}
	b := make([]byte, wire.HeaderSize+meta)
	metaOf(salt, sequence).fill(b[wire.HeaderSize:])
	h.Encode(b, b[wire.HeaderSize:])
	return b
}

// scribble overwrites m itself, which is the caller's again when Send returns.
func scribble(m *van.Message) {
	wrong := make([]byte, 1)
	for i := range m.Payload {
		m.Payload[i] = wrong
	}
	for i := range m.Target {
		m.Target[i] = van.Target{Offset: -1}
	}
	*m = van.Message{Op: ^van.OpID(0)}
}
