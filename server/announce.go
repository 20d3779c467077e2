package server

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/link/progress"
	"github.com/stepvan/stepvan/wire"
)

// notice is one announcement to several workers, and who waits for it.
type notice struct {
	pending atomic.Int32
	done    progress.Event
}

func (n *notice) settle(s *Server) {
	if n.pending.Add(-1) == 0 {
		s.node.Engine().Set(&n.done)
	}
}

// announce queues the news of chunks for their workers, those that are there.
// Under s.mu; the caller then delivers it.
func (s *Server) announce(op uint8, generation uint32, chunks []*chunk) (*notice, []*remote) {
	n := new(notice)
	n.pending.Store(1) // the caller's own
	of := make(map[*remote][]*chunk)
	var to []*remote
	for _, c := range chunks {
		if c.worker.session == nil {
			continue // it is told when it comes
		}
		if of[c.worker] == nil {
			to = append(to, c.worker)
		}
		of[c.worker] = append(of[c.worker], c)
	}
	for _, r := range to {
		s.post(r, n, op, generation, of[r])
	}
	return n, to
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
			n.pending.Add(1)
		}
		r.outbox = append(r.outbox, l)
	}
}

// retry is how long deliver waits before it offers a full queue its letters again.
const retry = time.Millisecond

// deliver sends what announce has queued and waits until it is acknowledged, or
// its worker is lost. The error is errs.ErrClosed when the node is closed meanwhile.
func (s *Server) deliver(n *notice, to []*remote) error {
	n.settle(s)
	for {
		for _, r := range to {
			s.pump(r)
		}
		err := s.node.Engine().WaitFor(retry, &n.done)
		if n.done.IsSet() {
			return nil
		}
		if errors.Is(err, errs.ErrClosed) {
			return errClosed("register_recv_buffer")
		}
	}
}
