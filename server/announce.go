package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// notice is what workers have to hear, or to let go of, and who waits for that.
type notice struct {
	to      []*remote // whose outboxes hold letters of it
	pending atomic.Int32
	done    progress.Event
	awaited []*remote // one for each that is pending, but the caller's own; guarded by Server.mu
}

// newNotice makes one that is pending until its maker settles it.
func newNotice() *notice {
	n := new(notice)
	n.pending.Store(1)
	return n
}

// await has n wait for something of r. Under Server.mu, before its maker settles it.
func (n *notice) await(r *remote) {
	n.pending.Add(1)
	n.awaited = append(n.awaited, r)
}

// heard notes what await has asked for. Under Server.mu; settle follows, without it.
func (n *notice) heard(r *remote) {
	if i := slices.Index(n.awaited, r); i >= 0 {
		n.awaited = slices.Delete(n.awaited, i, i+1)
	}
}

func (n *notice) settle(s *Server) {
	if n.pending.Add(-1) == 0 {
		s.node.Engine().Set(&n.done)
	}
}

// announce queues the news of chunks for their workers, those that are there.
// Under s.mu; the caller then settles and delivers it.
func (s *Server) announce(op uint8, generation uint32, chunks []*chunk) *notice {
	n := newNotice()
	of := make(map[*remote][]*chunk)
	for _, c := range chunks {
		if c.worker.session == nil {
			continue // it is told when it comes
		}
		if of[c.worker] == nil {
			n.to = append(n.to, c.worker)
		}
		of[c.worker] = append(of[c.worker], c)
	}
	for _, r := range n.to {
		s.post(r, n, op, generation, of[r])
	}
	return n
}

// announceAll queues everything that is registered for a worker which has come. Under s.mu.
func (s *Server) announceAll(r *remote) {
	if len(r.chunks) == 0 {
		return
	}
	s.post(r, nil, wire.OpAnnounce, s.generation, slices.Collect(maps.Values(r.chunks)))
}

// post queues announcements of at most wire.MaxAnnounced keys. Only the last one
// raises the worker's generation, which says that it knows all of them.
func (s *Server) post(r *remote, n *notice, op uint8, generation uint32, chunks []*chunk) {
	for len(chunks) > 0 {
		l := s.newLetter(r)
		l.notice = n
		l.chunks = append(l.chunks, chunks[:min(len(chunks), wire.MaxAnnounced)]...)
		chunks = chunks[len(l.chunks):]
		l.out = link.Outbound{
			Channel: link.ChannelRegister, Op: op, Flags: wire.FlagAckNow,
			Pushes: uint32(len(l.chunks)), Completer: s, User: l,
		}
		if len(chunks) == 0 {
			l.out.Generation = generation
		}
		if n != nil {
			n.await(r)
		}
		r.outbox = append(r.outbox, l)
	}
}

// retry is how long deliver waits before it offers a full queue its letters again.
const retry = time.Millisecond

// deliver sends what announce has queued and waits until it is acknowledged, or
// its worker is lost, and until nobody reaches what has ended. The error is stepvan.ErrClosed when the node is closed
// meanwhile, and wraps ctx.Err() when ctx ends first: then it can be called again.
func (s *Server) deliver(ctx context.Context, op string, n *notice) error {
	begun := time.Now()
	for {
		for _, r := range n.to {
			s.pump(r)
		}
		err := s.node.Engine().WaitFor(retry, &n.done)
		switch {
		case n.done.IsSet():
			return nil
		case errors.Is(err, stepvan.ErrClosed):
			return errClosed(op)
		case ctx.Err() != nil:
			return s.unheard(op, n, errs.GaveUp(time.Since(begun), ctx.Err()))
		}
	}
}

// unheard says whom a wait was for that has ended in vain.
func (s *Server) unheard(op string, n *notice, why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault := &stepvan.OpError{Op: op}
	what := "the worker has not acknowledged what is registered, or still reaches memory that is not any more"
	if len(n.awaited) > 0 {
		fault.Peer = n.awaited[0].name
		if n.awaited[0].session == nil {
			what = "the worker was lost, but its process lives, and still reaches memory that is not registered any more"
		}
	}
	fault.Err = fmt.Errorf("%s; go on waiting with Registration.Wait: %w", what, why)
	return fault
}
