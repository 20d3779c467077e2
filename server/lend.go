package server

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// Over a one-sided van a chunk is lent to its worker with the announcement, which then writes its
// pushes there by itself. A chunk that ends is retracted: the worker is told, stops and says so with a
// fence, behind whatever it had written; then the van takes the grant back. A
// worker that is lost has to let go instead. Until that is over nobody else may
// have the memory, so it stays held, and announcements of chunks in it wait.

// retraction is a grant on its way back. Guarded by Server.mu.
type retraction struct {
	chunk      *chunk
	session    *link.Session
	grant      link.GrantID
	generation uint32    // of the OpWithdraw that lists it
	begun      bool      // nothing more comes that was written into it, and the van takes it back
	waiters    []*notice // told when it is over
}

// lend grants the chunks of an announcement to its worker where the van can. It reports false
// when the van's queue is full. Under s.mu.
func (s *Server) lend(r *remote, chunks []*chunk) bool {
	session := r.session
	if !session.OneSided() {
		return true
	}
	for _, c := range chunks {
		if c.grant != 0 || !c.installed() || c.reg.tensor.Retain() != nil {
			continue
		}
		g, err := session.Grant(c.mem, c.generation, link.RightWrite)
		if err != nil {
			c.reg.tensor.Release()
			if errors.Is(err, stepvan.ErrWouldBlock) {
				return false
			}
			s.unlent(r, c, err)
			continue // the worker sends its pushes to be read
		}
		c.grant, c.lentTo = g.ID, session
		delete(r.unlent, c)
	}
	return true
}

// chunkSet is some chunks.
type chunkSet map[*chunk]struct{}

// unlent keeps a chunk that there is no grant for until one comes back, and tells the log, once for each worker, that there
// are more than can be lent: that can be changed. Under s.mu.
func (s *Server) unlent(r *remote, c *chunk, err error) {
	if !errors.Is(err, errs.ErrNoGrant) {
		return
	}
	if r.unlent == nil {
		r.unlent = chunkSet{}
	}
	r.unlent[c] = struct{}{}
	if r.scant {
		return
	}
	r.scant = true
	s.opt.Log.Warn().Str("peer", r.name).Int("chunks", len(r.chunks)).Err(err).
		Msg("more registered chunks than this worker can be let into; pushes for the rest are sent and copied. Raise STEPVAN_GRANTS on both sides")
}

// relend announces a chunk again that there was no grant for, when one has come back in the session: one for one, so that
// no attempt is made in vain. Under s.mu; whoever calls it pumps the outbox.
func (s *Server) relend(session *link.Session) {
	r := s.sessions[session]
	if r == nil {
		return
	}
	for c := range r.unlent {
		delete(r.unlent, c)
		s.post(r, nil, wire.OpAnnounce, s.generation, []*chunk{c})
		return
	}
}

// describe is what the worker is told of c.
func (c *chunk) describe() wire.Descriptor {
	d := wire.KeyOf(c.key, int64(len(c.mem)))
	d.Region, d.Generation = uint64(c.grant), c.generation
	return d
}

// retract begins to take the grant of c back, if there is one. Under s.mu; whoever
// calls it sees to it that the worker is told with this generation, or that its session ends.
func (s *Server) retract(c *chunk, generation uint32) {
	if c.grant == 0 {
		return
	}
	s.retractions = append(s.retractions, &retraction{chunk: c, session: c.lentTo, grant: c.grant, generation: generation})
	c.grant, c.lentTo = 0, nil
}

// fenced hears that a worker has written the last into the grants that it was told to leave alone.
func (s *Server) fenced(m *link.Inbound) {
	session, g := m.Session, m.Header.Generation
	err := wire.CheckFence(&m.Header)
	m.Release()
	if err != nil {
		s.breakOff(session, err)
		return
	}
	s.mu.Lock()
	list := s.due(session, g)
	s.mu.Unlock()
	s.takeBack(list)
}

// due lists the retractions up to a generation whose session is this one and that can begin. Under s.mu.
func (s *Server) due(session *link.Session, generation uint32) (list []*retraction) {
	for _, t := range s.retractions {
		if t.session == session && t.generation <= generation && !t.begun {
			t.begun = true
			list = append(list, t)
		}
	}
	return list
}

// takeBack has the van take grants back. Without s.mu.
func (s *Server) takeBack(list []*retraction) {
	for _, t := range list {
		t.session.Withdraw(t.grant, func() { s.retracted(t) })
	}
}

// retracted hears that nobody reaches a chunk's memory any more. Without locks.
func (s *Server) retracted(t *retraction) {
	s.mu.Lock()
	for i, other := range s.retractions {
		if other == t {
			s.retractions = append(s.retractions[:i], s.retractions[i+1:]...)
			break
		}
	}
	t.chunk.reg.tensor.Release()
	s.relend(t.session)
	for _, n := range t.waiters {
		n.heard(t.chunk.worker)
	}
	var waiting []*remote
	for _, r := range s.sessions {
		if len(r.outbox) > 0 {
			waiting = append(waiting, r)
		}
	}
	s.mu.Unlock()
	for _, n := range t.waiters {
		n.settle(s)
	}
	for _, r := range waiting {
		s.pump(r)
	}
}

// retracting finds the retraction of what a push was written into. Under s.mu.
func (s *Server) retracting(in *incoming, d *wire.Descriptor) *retraction {
	for _, t := range s.retractions {
		if t.session == in.session && uint64(t.grant) == d.Region && t.chunk.key == d.Key && t.chunk.generation == d.Generation &&
			d.Offset == 0 && d.Bytes <= uint64(len(t.chunk.mem)) {
			return t
		}
	}
	return nil
}

// reached reports whether a worker may still write into the memory of one of the chunks, though
// that was lent to it for another one. Under s.mu.
func (s *Server) reached(chunks []*chunk) bool {
	for _, t := range s.retractions {
		for _, c := range chunks {
			if t.chunk.overlaps(c) {
				return true
			}
		}
	}
	return false
}

// awaitRetractions has n wait until nobody reaches the memory of the chunks. Under s.mu.
func (s *Server) awaitRetractions(n *notice, chunks []*chunk) {
	for _, t := range s.retractions {
		for _, c := range chunks {
			if t.chunk.overlaps(c) {
				n.await(t.chunk.worker)
				t.waiters = append(t.waiters, n)
				break
			}
		}
	}
}

func (c *chunk) overlaps(d *chunk) bool {
	lo, from := start(c.mem), start(d.mem)
	return lo < from+uintptr(len(d.mem)) && from < lo+uintptr(len(c.mem))
}
