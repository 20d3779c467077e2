package vantest

import "github.com/stepvan/stepvan/van"

const (
	kib = 1 << 10
	mib = 1 << 20
)

// fits is the largest meta of the suite that the van can carry.
func (n *node) fits(meta int) int { return min(meta, n.van.Caps().MaxMeta) }

// run sends all shapes from s to peer while both are polled, and waits until
// they have been delivered and have completed.
func (s *side) run(peer *side, shapes ...shape) {
	for _, c := range shapes {
		s.send(c)
	}
	s.arrive(peer)
}

// arrive waits until everything that s has sent was delivered to peer, and has completed.
func (s *side) arrive(peer *side) {
	s.n.p.until("delivery and completion of everything sent", func() bool {
		return peer.count().delivered >= s.count().sent && s.idle()
	})
}

// mix is n shapes of random small and, now and then, larger sizes.
func (p *probe) mix(n, large int) []shape {
	list := make([]shape, n)
	for i := range list {
		c := shape{size: p.rng.IntN(300), segments: 1 + p.rng.IntN(4), meta: p.rng.IntN(100)}
		switch p.rng.IntN(16) {
		case 0:
			c.size = 0
		case 1:
			c.size = p.rng.IntN(large)
		}
		list[i] = c
	}
	return list
}

// duplex sends shapes in both directions at once.
func duplex(a, b *side, shapes []shape) {
	for _, c := range shapes {
		a.send(c)
		b.send(c)
	}
	a.arrive(b)
	b.arrive(a)
}

// stuff sends messages of size bytes, polling only the sender, until the queue is full.
// It returns how many were accepted.
func (s *side) stuff(c shape) (n int) {
	p := s.n.p
	const most = 256 * mib // in flight; no socket buffer is as large
	for ; n < most/(c.size+c.meta); n++ {
		if !s.tryOften(c) {
			return n
		}
	}
	p.fail(5, "the queue took %d messages of %d bytes and is not full: it must be bounded", n, c.size)
	return n
}

// tryOften is try, and polls the sender's van in between.
func (s *side) tryOften(c shape) bool {
	for range 50 {
		if s.try(c) {
			return true
		}
		s.n.poll(true)
	}
	return false
}

// granter is the endpoint as one that grants.
func (s *side) granter() van.Granter {
	g, ok := s.ep.(van.Granter)
	if !ok {
		s.n.p.fail(8, "Caps.OneSided is true, but endpoint %T is not a van.Granter", s.ep)
	}
	return g
}
