package vantest

import (
	"errors"
	"math/rand/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// side is one endpoint and the books that are kept on it. Guarded by node.mu.
type side struct {
	n       *node
	ep      van.Endpoint
	out, in uint64 // salts of the two directions; in is 0 until known
	peer    *side  // the other side, where this process has it

	// sending
	next      uint64 // sequence of the next message
	sent      int    // accepted
	issued    map[van.OpID]*op
	sending   van.OpID // whose Send has not returned
	completed int
	succeeded int           // completed without error
	room      chan struct{} // a completion arrived

	// receiving
	expect    uint64 // sequence of the next message
	delivered int
	hold      bool // keep deliveries
	held      []*arrival
	places    map[uint64]*placement
	refuse    func(sequence uint64) error
	parts     int             // segments that a payload is placed into
	rejected  map[uint64]bool // sequences that the peer was told are not accepted
	peek      func(*arrival)  // looks at every message

	rng *rand.Rand // of the goroutine that sends

	lastErr error // of the last completion
	end     ending
	allow   allowance
}

// ending is how the life of an endpoint began and ended.
type ending struct {
	accepts  int
	lost     bool
	detached bool // EventDetached has come
	reason   error
	closed   bool // on this side
}

// allowance is what a case permits that the suite otherwise reports.
type allowance struct {
	granting bool // payload may arrive through a grant
	faulty   bool // operations may fail
	anything bool // messages may be missing: the peer sends what must fail
	stormy   bool // many goroutines close the endpoint
	stranger bool // the peer says anything; the suite does not compare its messages
}

// op is an accepted operation and its source memory.
type op struct {
	head     []byte
	segments [][]byte
}

// arrival is a delivered message.
type arrival struct {
	d        *van.Delivery
	sequence uint64
	where    *placement
}

func newSide(n *node, ep van.Endpoint) *side {
	return &side{
		n: n, ep: ep, next: 1, expect: 1, parts: 1,
		issued:   map[van.OpID]*op{},
		places:   map[uint64]*placement{},
		rejected: map[uint64]bool{},
		room:     make(chan struct{}, 1),
		rng:      rand.New(rand.NewPCG(uint64(len(n.sides)), 4)),
	}
}

// shape describes a message to send.
type shape struct {
	size     int // bytes of payload
	segments int // number of segments, 1 when 0
	meta     int // bytes of meta
	target   []van.Target
	halves   bool // two segments of equal length
	spare    bool // with memory to spare, so that the source may be overwritten after Send
}

// try sends one message; false means that the queue was full.
func (s *side) try(c shape) bool {
	err := s.offer(c)
	if err != nil && !errors.Is(err, stepvan.ErrWouldBlock) {
		s.n.p.fail(s.n.p.clause, "Send of %d bytes: %v", c.size, err)
	}
	return err == nil
}

// offer sends one message and returns what Send returned.
func (s *side) offer(c shape) error {
	m, o := c.compose(s)
	n := s.n
	n.mu.Lock()
	n.ops++
	m.Op = n.ops
	id := m.Op
	s.issued[id] = o
	s.sending = id
	n.mu.Unlock()

	err := s.ep.Send(m)

	done := m.Done
	if err == nil && c.spare {
		for _, b := range m.Payload {
			paint(b, junk)
		}
	}
	scribble(m)
	n.mu.Lock()
	defer n.mu.Unlock()
	s.sending = 0
	if err == nil {
		s.sent++
		s.next++
		if done {
			if s.issued[id] == nil {
				n.p.fail(1, "operation %d completed as an event, though Send said that it is complete", id)
			}
			s.settle(id, o, nil) // perhaps after the end of the connection, which came during Send
		}
		return nil
	}
	if _, ok := s.issued[id]; !ok {
		n.p.fail(1, "operation %d completed, though Send rejected it: %v", id, err)
	}
	delete(s.issued, id)
	n.refused[id] = true
	if errors.Is(err, stepvan.ErrWouldBlock) && len(s.issued) == 0 && !n.p.parallel.Load() {
		n.p.fail(5, "Send says ErrWouldBlock while no operation is outstanding: nothing will tell when to try again")
	}
	return err
}

// compose makes the next message of this side.
func (c shape) compose(s *side) (*van.Message, *op) {
	payload := make([]byte, c.size)
	payloadOf(s.out, s.next).fill(payload)
	head := encode(wire.Header{
		Kind: wire.KindData, Sequence: s.next, Request: s.out,
		Payload: uint64(c.size), Total: uint64(c.size),
	}, c.meta)
	o := &op{head: head}
	switch {
	case c.halves:
		o.segments = [][]byte{payload[:c.size/2], payload[c.size/2:]}
	case c.segments > 1:
		o.segments = cutUp(payload, c.segments, s.rng)
	case c.size > 0:
		o.segments = [][]byte{payload}
	}
	m := &van.Message{Head: head, Target: append([]van.Target(nil), c.target...)}
	m.Payload = append(m.Payload, o.segments...) // the van may not keep this slice
	if c.spare {
		m.Spare = make([]byte, c.size)
		paint(m.Spare, junk)
		o.segments = [][]byte{m.Spare}
	}
	return m, o
}

// encode makes a head with the meta that belongs to its sequence.
func encode(h wire.Header, meta int) []byte {
	head := make([]byte, wire.HeaderSize+meta)
	metaOf(h.Request, h.Sequence).fill(head[wire.HeaderSize:])
	h.Encode(head, head[wire.HeaderSize:])
	return head
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

// send sends one message, polling while the queue is full.
func (s *side) send(c shape) {
	s.n.p.until("room in the queue", func() bool { return s.try(c) })
}

// await sleeps until a completion arrived, which another goroutine must poll.
func (s *side) await() {
	select {
	case <-s.room:
	case <-s.n.p.ctx.Done():
	}
}

// close closes the endpoint, twice.
func (s *side) close() {
	s.n.mu.Lock()
	s.end.closed, s.allow.faulty = true, true
	s.n.mu.Unlock()
	for range 2 {
		if err := s.ep.Close(); err != nil {
			s.n.p.fail(6, "Endpoint.Close: %v", err)
		}
	}
}

// endangered says that operations of this side may fail from here on.
func (s *side) endangered() {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.allow.faulty = true
}

// release gives up to k held deliveries back, oldest first, after another look
// at them. It returns how many.
func (s *side) release(k int) int {
	s.n.mu.Lock()
	k = min(k, len(s.held))
	give := s.held[:k:k]
	s.held = s.held[k:]
	s.n.mu.Unlock()
	for _, a := range give {
		a.examine(s, "still held")
		a.d.Release()
	}
	return k
}

// snapshot is a copy of a side's counters.
type snapshot struct {
	sent, completed, succeeded, outstanding, delivered, held int
	lost, detached                                           bool
	reason                                                   error
}

func (s *side) count() snapshot {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	return snapshot{s.sent, s.completed, s.succeeded, len(s.issued), s.delivered, len(s.held), s.end.lost, s.end.detached, s.end.reason}
}

// idle reports whether everything sent has completed.
func (s *side) idle() bool { return s.count().outstanding == 0 }
