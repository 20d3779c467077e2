package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// bufferChange is a registration, or the end of one, until all workers concerned have confirmed it. Guarded by
// Server.mu, except done.
type bufferChange struct {
	awaited []*workerPeer // one entry for each confirmation that is missing
	done    progress.Event
}

// expect makes the change wait for one more confirmation of w.
func (c *bufferChange) expect(w *workerPeer) { c.awaited = append(c.awaited, w) }

// confirm notes one confirmation of w, or that w is lost. It reports whether that was the last one; then the caller
// sets done, without Server.mu.
func (c *bufferChange) confirm(w *workerPeer) bool {
	if i := slices.Index(c.awaited, w); i >= 0 {
		c.awaited = slices.Delete(c.awaited, i, i+1)
	}
	return len(c.awaited) == 0
}

// announce queues the news of chunks for their workers. A worker without a session gets them when it opens one. Under
// Server.mu; the caller flushes the outboxes.
func (t *bufferTable) announce(op uint8, generation uint32, chunks []*chunk) *bufferChange {
	change := new(bufferChange)
	of := make(map[*workerPeer][]*chunk)
	for _, c := range chunks {
		if c.worker.session != nil {
			of[c.worker] = append(of[c.worker], c)
		}
	}
	for w, list := range of {
		t.post(w, change, op, generation, list)
	}
	return change
}

// announceAll queues all chunks of a worker whose session has opened. Under Server.mu.
func (t *bufferTable) announceAll(w *workerPeer) {
	t.post(w, nil, wire.OpAnnounce, t.generation, slices.Collect(maps.Values(w.chunks)))
}

// post queues announcements of at most wire.MaxAnnounced keys each. Only the last one raises the worker's generation,
// which tells that the worker knows all of them.
func (t *bufferTable) post(w *workerPeer, change *bufferChange, op uint8, generation uint32, chunks []*chunk) {
	for len(chunks) > 0 {
		m := t.s.messages.take(w)
		m.change = change
		m.chunks = append(m.chunks, chunks[:min(len(chunks), wire.MaxAnnounced)]...)
		chunks = chunks[len(m.chunks):]
		m.out = link.Outbound{
			Channel: link.ChannelRegister, Op: op, Flags: wire.FlagAckNow,
			Pushes: uint32(len(m.chunks)), Completer: &t.s.messages, User: m,
		}
		if len(chunks) == 0 {
			m.out.Generation = generation
		}
		if change != nil {
			change.expect(w)
		}
		w.outbox = append(w.outbox, m)
	}
}

// encodeAnnouncement fills the message with what is true of its chunks when it goes. It reports false while it has to
// wait. Under Server.mu.
func (t *bufferTable) encodeAnnouncement(w *workerPeer, m *message) bool {
	if m.out.Op == wire.OpAnnounce && (t.reachable(m.chunks) || !t.grantChunks(w, m.chunks)) {
		return false
	}
	m.meta = m.meta[:0]
	for _, c := range m.chunks {
		d := c.describe()
		m.meta = d.Append(m.meta)
	}
	m.out.Meta = m.meta
	return true
}

// resendPause is how long a change waits before it offers announcements to a full queue again.
const resendPause = time.Millisecond

// await waits until all changes of the buffer are confirmed. The error is stepvan.ErrClosed when the transport is
// closed meanwhile. It wraps ctx.Err() when ctx ends first; then await can be called again.
func (b *ReceiveBuffer) await(ctx context.Context, op string) error {
	s := b.s
	begun := time.Now()
	for {
		s.mu.Lock()
		b.changes = slices.DeleteFunc(b.changes, func(c *bufferChange) bool { return len(c.awaited) == 0 })
		var change *bufferChange
		var waiting []*workerPeer
		if len(b.changes) > 0 {
			change = b.changes[0]
			waiting = slices.Clone(change.awaited)
		}
		s.mu.Unlock()
		if change == nil {
			return nil
		}
		for _, w := range waiting {
			s.messages.flush(w)
		}
		err := s.transport.Engine().WaitFor(resendPause, &change.done)
		switch {
		case change.done.IsSet():
		case errors.Is(err, stepvan.ErrClosed):
			return errClosed(op)
		case ctx.Err() != nil:
			return change.unconfirmed(s, op, errs.GaveUp(time.Since(begun), ctx.Err()))
		}
	}
}

// unconfirmed returns the error of a wait that has ended because of why. It names a worker that is missing.
func (c *bufferChange) unconfirmed(s *Server, op string, why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &stepvan.OpError{Op: op}
	what := "the worker has not acknowledged what is registered, or still reaches memory that is registered no more"
	if len(c.awaited) > 0 {
		e.Peer = c.awaited[0].name
		if c.awaited[0].session == nil {
			what = "the worker was lost, but its process lives and still reaches memory that is registered no more"
		}
	}
	e.Err = fmt.Errorf("%s: wait again with ReceiveBuffer.Wait: %w", what, why)
	return e
}
