package server

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// Over a one-sided van the server grants a chunk to its worker with the announcement. From then on the worker writes
// its pushes there by itself. When the chunk ends, the server withdraws the grant: it tells the worker, and the worker
// answers with a fence behind its last write. Then the van takes the grant back. For a lost worker the van does so when
// the worker's process reaches the memory no more. Until then the memory stays retained, nobody else gets it, and
// announcements of chunks in it wait.

// chunkSet is a set of chunks.
type chunkSet map[*chunk]struct{}

// grantChunks grants the chunks of an announcement to their worker where the van can. It reports false when the van's
// queue is full. Under Server.mu.
func (t *bufferTable) grantChunks(w *workerPeer, chunks []*chunk) bool {
	if !w.session.OneSided() {
		return true
	}
	for _, c := range chunks {
		if c.state != chunkAnnounced || !c.registered() || c.buffer.tensor.Retain() != nil {
			continue
		}
		mem, direct := c.room(w.session)
		g, err := w.session.Grant(mem, c.generation, link.RightWrite)
		if err != nil {
			c.buffer.tensor.Release()
			if errors.Is(err, stepvan.ErrWouldBlock) {
				return false
			}
			t.noteUngranted(w, c, err)
			continue // the worker sends its pushes
		}
		c.leave(chunkAnnounced)
		c.grant, c.session, c.direct = g.ID, w.session, direct
		delete(w.ungranted, c)
	}
	return true
}

// noteUngranted keeps a chunk for which the van has no grant left, until one is free. It warns once per worker, because
// a setting helps. Under Server.mu.
func (t *bufferTable) noteUngranted(w *workerPeer, c *chunk, err error) {
	if !errors.Is(err, errs.ErrNoGrant) {
		return
	}
	if w.ungranted == nil {
		w.ungranted = chunkSet{}
	}
	w.ungranted[c] = struct{}{}
	if w.grantsWarned {
		return
	}
	w.grantsWarned = true
	t.s.opt.Log.Warn().Str("peer", w.name).Int("chunks", len(w.chunks)).Err(err).
		Msg("more registered chunks than grants for this worker; pushes to the rest are sent and copied. Raise STEPVAN_GRANTS on both sides")
}

// grantNext announces one ungranted chunk again when a grant of the session is free. One for one, so no attempt is in
// vain. Under Server.mu; the caller flushes the outbox.
func (t *bufferTable) grantNext(session *link.Session) {
	w := t.s.sessions.open[session]
	if w == nil {
		return
	}
	for c := range w.ungranted {
		delete(w.ungranted, c)
		t.post(w, nil, wire.OpAnnounce, t.generation, []*chunk{c})
		return
	}
}

// withdraw begins to take the grant of c back, if it has one. Under Server.mu. The caller tells the worker with this
// generation, or its session has ended.
func (t *bufferTable) withdraw(c *chunk, generation uint32) {
	if c.leave(chunkGranted) {
		c.withdrawnIn = generation
		t.withdrawn = append(t.withdrawn, c)
	}
}

// reclaim has the van take back the grants of a session that were withdrawn up to a generation. Under Server.mu.
func (t *bufferTable) reclaim(session *link.Session, generation uint32, later *deferredWork) {
	for _, c := range t.withdrawn {
		if c.session == session && c.withdrawnIn <= generation && c.leave(chunkWithdrawing) {
			later.withdraw = append(later.withdraw, c)
		}
	}
}

// withdrawGrant has the van take the grant of c back. Without Server.mu, which the end of it takes.
func (t *bufferTable) withdrawGrant(c *chunk) {
	c.session.Withdraw(c.grant, func() { t.grantEnded(c) })
}

// grantEnded notes that nobody reaches the memory of c any more. Without locks.
func (t *bufferTable) grantEnded(c *chunk) {
	var later deferredWork
	t.s.mu.Lock()
	session := c.session
	t.withdrawn = slices.DeleteFunc(t.withdrawn, func(other *chunk) bool { return other == c })
	c.leave(chunkFreeing)
	c.grant, c.session = 0, nil
	c.buffer.tensor.Release()
	t.grantNext(session)
	for _, change := range c.awaitedBy {
		if change.confirm(c.worker) {
			later.changes = append(later.changes, change)
		}
	}
	c.awaitedBy = nil
	for _, w := range t.s.sessions.open {
		if len(w.outbox) > 0 {
			later.flush = append(later.flush, w)
		}
	}
	t.s.mu.Unlock()
	later.run(t.s)
}

// findWithdrawn returns the chunk with a withdrawn grant that d names in a session, or nil. Under Server.mu.
func (t *bufferTable) findWithdrawn(session *link.Session, d *wire.Descriptor) *chunk {
	for _, c := range t.withdrawn {
		if c.session == session && c.key == d.Key && c.named(d) && d.Bytes <= uint64(len(c.mem)) {
			return c
		}
	}
	return nil
}

// reachable reports whether a worker may still write into memory of the chunks through a withdrawn grant. Under
// Server.mu.
func (t *bufferTable) reachable(chunks []*chunk) bool {
	for _, withdrawn := range t.withdrawn {
		if withdrawn.overlapsAny(chunks) {
			return true
		}
	}
	return false
}

// awaitWithdrawn makes change wait until no withdrawn grant reaches memory of the chunks. Under Server.mu.
func (t *bufferTable) awaitWithdrawn(change *bufferChange, chunks []*chunk) {
	for _, withdrawn := range t.withdrawn {
		if withdrawn.overlapsAny(chunks) {
			change.expect(withdrawn.worker)
			withdrawn.awaitedBy = append(withdrawn.awaitedBy, change)
		}
	}
}

func (c *chunk) overlapsAny(chunks []*chunk) bool {
	return slices.ContainsFunc(chunks, c.overlaps)
}

// fence notes that a worker writes no more into the grants that it was told to leave.
func (h requestHandler) fence(m *link.Inbound) {
	if err := wire.CheckFence(&m.Header); err != nil {
		h.s.breakOff(m.Session, err)
		return
	}
	var later deferredWork
	h.s.mu.Lock()
	h.s.buffers.reclaim(m.Session, m.Header.Generation, &later)
	h.s.mu.Unlock()
	later.run(h.s)
}
