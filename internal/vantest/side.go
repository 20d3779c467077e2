package vantest

import (
	"errors"
	"math/rand/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// side is one endpoint, as a case uses it.
type side struct {
	books
	n       *node
	peer    *side       // the other side, where this process has it
	granter van.Granter // ep, with Caps.OneSided
	viewer  van.Viewer  // ep, with Caps.Views; else nil
}

func newSide(n *node, ep van.Endpoint) *side {
	caps := n.van.Caps()
	granter, ok := ep.(van.Granter)
	if caps.OneSided && !ok {
		n.t.fail(8, "Caps.OneSided is true, but endpoint %T is not a van.Granter", ep)
	}
	var viewer van.Viewer
	if caps.Views {
		if viewer, ok = ep.(van.Viewer); !ok {
			n.t.fail(8, "Caps.Views is true, but endpoint %T is not a van.Viewer", ep)
		}
	}
	return &side{n: n, granter: granter, viewer: viewer, books: books{
		t: n.t, ep: ep, caps: caps,
		out: outgoing{
			next: 1, issued: map[van.OpID][][]byte{}, rejected: map[van.OpID]bool{},
			room: make(chan struct{}, 1), rng: rand.New(rand.NewPCG(uint64(len(n.sides)), 4)),
		},
		in: incoming{expect: 1, parts: 1, places: map[uint64]*placement{}},
	}}
}

// offer sends one message and returns what Send returned.
func (s *side) offer(c shape) error {
	m, source := s.out.compose(c)
	if c.viewed {
		s.t.must(writeThroughViews(s.viewer, m), "Map")
	}
	if !c.raw {
		s.t.must(registerSources(s.n.van, m), "Register")
	}
	id := s.begin(source)
	m.Op = id
	err := s.ep.Send(m)
	done := m.Done
	if err == nil && c.spare {
		paint(junk, m.Payload...)
	}
	scribble(m)

	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.out.sending = 0
	_, open := s.out.issued[id]
	switch {
	case err != nil && !open:
		s.t.fail(1, "operation %d completed, though Send rejected it: %v", id, err)
	case err != nil:
		delete(s.out.issued, id)
		s.out.rejected[id] = true
		if errors.Is(err, stepvan.ErrWouldBlock) && len(s.out.issued) == 0 && !s.t.parallel.Load() {
			s.t.fail(5, "Send says ErrWouldBlock while no operation is outstanding: nothing will tell when to try again")
		}
		return err
	case done && !open:
		s.t.fail(1, "operation %d completed as an event, though Send said that it is complete", id)
	case done:
		s.out.settle(id, nil) // perhaps after the end of the connection, which came during Send
	}
	s.out.sent++
	s.out.next++
	s.out.refused = nil
	return nil
}

// registerSources registers the memory of m that v writes from, where v needs that.
func registerSources(v van.Van, m *van.Message) (err error) {
	for i, t := range m.Target {
		if v.Caps().Registered && i < len(m.Payload) && len(m.Payload[i]) > 0 && !t.IsZero() {
			err = errors.Join(err, v.(van.Registrar).Register(m.Payload[i]))
		}
	}
	return err
}

// deregisterSource ends the registration of what the last Send of a side writes from, unless that is complete.
func (n *node) deregisterSource(s *side) (err error) {
	n.mu.Lock()
	source := s.out.issued[n.ops]
	n.mu.Unlock()
	if source == nil {
		return nil
	}
	for _, b := range source[1:] { // behind the head
		err = errors.Join(err, n.van.(van.Registrar).Deregister(b))
	}
	return err
}

// writeThroughViews writes the payload of m to its targets, so that the head alone is left to send.
func writeThroughViews(to van.Viewer, m *van.Message) error {
	for i, t := range m.Target {
		v, err := to.Map(t, int64(len(m.Payload[i])), van.RightWrite)
		if err != nil {
			return err
		}
		m.Written += int64(copy(v.Bytes, m.Payload[i]))
		v.Release()
	}
	m.Payload, m.Target = nil, nil
	return nil
}

// viewedOrNot lists how a side can write to a target: through a View, if the van has those, and not.
func viewedOrNot(caps van.Caps) []bool {
	if !caps.Views {
		return []bool{false}
	}
	return []bool{false, true}
}

// offerWaiting is offer for a goroutine of its own: it waits for room while somebody else polls.
func (s *side) offerWaiting(c shape) error {
	for {
		err := s.offer(c)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return err
		}
		select {
		case <-s.out.room:
		case <-s.t.ctx.Done():
			return err
		}
	}
}

// begin notes an operation that the caller is about to start. source is nil unless the operation is a Send.
func (s *side) begin(source [][]byte) van.OpID {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.n.ops++
	s.out.issued[s.n.ops] = source
	if source != nil {
		s.out.sending = s.n.ops
	}
	return s.n.ops
}

// try offers messages, and leaves out those for which there is no room. It reports whether all were accepted.
func (s *side) try(shapes ...shape) bool {
	accepted := true
	for _, c := range shapes {
		err := s.offer(c)
		if err != nil && !errors.Is(err, stepvan.ErrWouldBlock) {
			s.t.fail(s.t.clause, "Send of %d bytes: %v", c.size, err)
		}
		accepted = accepted && err == nil
	}
	return accepted
}

// send sends messages, and polls while the queue is full.
func (s *side) send(shapes ...shape) {
	for _, c := range shapes {
		s.t.until("room in the queue", func() bool { return s.try(c) })
	}
}

// drain waits until everything that s has sent was delivered to its peer, and has completed.
func (s *side) drain() {
	s.t.until("delivery and completion of everything sent", func() bool {
		return s.peer.count().delivered >= s.count().sent && s.idle()
	})
}

// deliver sends messages, and waits until they were delivered and have completed.
func (s *side) deliver(shapes ...shape) {
	s.send(shapes...)
	s.drain()
}

// exchange sends messages in both directions at once.
func (s *side) exchange(shapes ...shape) {
	for _, c := range shapes {
		s.send(c)
		s.peer.send(c)
	}
	s.drain()
	s.peer.drain()
}

// fill sends messages, and polls only the sender, until the queue is full.
func (s *side) fill(c shape) {
	const most = 256 * mib // in flight; no socket buffer is as large
	refusals := 0
	for n := 0; n < most/(c.size+c.meta); {
		if s.try(c) {
			n, refusals = n+1, 0
			continue
		}
		if refusals++; refusals == 50 {
			return
		}
		s.n.poll(true)
	}
	s.t.fail(5, "the queue took %d bytes in messages of %d, and is not full: it must be bounded", most, c.size)
}

// exhaust sends until all credits of the peer are in use and extra messages were offered behind them.
func (s *side) exhaust(extra int) {
	small := shape{size: 100, meta: 30}
	s.peer.in.hold = true
	before := s.peer.count().delivered
	s.t.until("as many deliveries as there are credits", func() bool {
		if s.count().sent-before < s.t.f.Credits+extra {
			s.try(small)
		}
		return s.peer.count().held == s.t.f.Credits && s.count().sent-before > s.t.f.Credits
	})
	s.try(times(extra, small)...)
	s.t.quiet()
}

// refuses fails the case unless Send calls each of the messages invalid.
func (s *side) refuses(shapes ...shape) {
	for _, c := range shapes {
		s.t.wantErr(s.offer(c), c.String(), stepvan.ErrInvalid)
	}
}

// close closes the endpoint, twice.
func (s *side) close() {
	s.closing()
	for range 2 {
		if err := s.ep.Close(); err != nil {
			s.t.fail(6, "Endpoint.Close: %v", err)
		}
	}
}

// closing says that this side is about to close the endpoint.
func (s *side) closing() {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.end.closed, s.allow.failures = true, true
}

// mayFail says that operations of the sides may fail from here on.
func mayFail(sides ...*side) {
	for _, s := range sides {
		s.n.mu.Lock()
		s.allow.failures = true
		s.n.mu.Unlock()
	}
}

// release gives up to k held deliveries back, oldest first, after another look
// at them. It returns how many.
func (s *side) release(k int) int {
	s.n.mu.Lock()
	k = min(k, len(s.in.held))
	give := s.in.held[:k:k]
	s.in.held = s.in.held[k:]
	s.n.mu.Unlock()
	for _, a := range give {
		a.examine(&s.books, "still held")
		a.Release()
	}
	return k
}

// releaseAll gives all held deliveries back, and keeps no others.
func (s *side) releaseAll() {
	s.in.hold = false
	s.release(s.t.f.Credits)
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
	return snapshot{
		s.out.sent, s.out.completed, s.out.succeeded, len(s.out.issued), s.in.delivered, len(s.in.held),
		s.end.lost, s.end.detached, s.end.reason,
	}
}

// idle reports whether everything sent has completed.
func (s *side) idle() bool { return s.count().outstanding == 0 }

func (s *side) isLost() bool { return s.count().lost }

func (s *side) isDetached() bool { return s.count().detached }

// received reports whether everything that the peer has sent was delivered.
func (s *side) received() bool { return s.count().delivered == s.peer.count().sent }
