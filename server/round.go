package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// In lock-step the n-th request of every worker makes the n-th batch. A request that the server refuses would shift
// its worker's later requests by one batch, so an entry in the worker's queue stands for it, and the batch that would
// have held it fails as a whole.

// maxRefusals bounds the entries of one worker, which go when their batches are taken.
const maxRefusals = 4096

// queueRefusal queues an entry for the request m, which was refused for why. It reports whether GetBatch may have
// waited for it, and what to tell the worker: why, or that it is cut off for too many. Requests that were not part of any
// batch leave no entry: of peers that are not paired, of peers that are cut off, and those that were routed to a server
// whose policy is LockStep, which takes none. A server of another policy takes them like others, so that they leave one
// there. None does where nobody has taken a batch in lock-step yet. Under s.mu.
func (s *Server) queueRefusal(from *remote, m *link.Inbound, why error) (wake bool, tell error) {
	var broken *stepvan.ProtocolError
	foreign := m.Header.Op != wire.OpRequest && s.opt.Policy == LockStep
	if from == nil || !from.paired || !s.lockStep || s.closed || s.abandoned() || foreign || errors.As(why, &broken) {
		return false, why
	}
	if from.refusals >= maxRefusals {
		return false, &stepvan.ProtocolError{Field: "request", Reason: fmt.Sprintf("%d requests were refused and wait for their batches, and yet another one was, because: %v", from.refusals, why)}
	}
	in := s.take()
	in.stage, in.from, in.session, in.id, in.reason = refused, from, m.Session, m.Header.Request, why
	s.push(from, in)
	return s.ready >= s.wanted, why
}

// dropRefusals takes the entries of refused requests off the heads of the queues, for a policy that has no rounds.
// Under s.mu.
func (s *Server) dropRefusals() {
	for _, r := range s.workers {
		for r.first != nil && r.first.stage == refused {
			s.recycle(s.pop(r)) // which holds nothing
		}
	}
}

// failedRound is a batch with a refused request. What its other requests hold is released without Server.mu.
type failedRound struct {
	err  error // for GetBatch
	held []*link.Inbound
	to   []*remote // that have news in their outbox
}

// failRound takes the next request of every worker, if one of these was refused, and tells the other workers. nil: none
// was. Under s.mu, when every worker has a request.
func (s *Server) failRound() *failedRound {
	var first *incoming
	others := 0
	for _, r := range s.workers {
		switch {
		case r.first.stage != refused:
		case first == nil:
			first = r.first
		default:
			others++
		}
	}
	if first == nil {
		return nil
	}
	reason := strings.TrimPrefix(first.reason.Error(), stepvan.ErrInvalid.Error()+": ")
	text := reason
	if others > 0 {
		text += fmt.Sprintf("; %d more requests of this batch were refused", others)
	}
	f := &failedRound{err: &stepvan.OpError{Op: "get_batch", Peer: first.from.name, Err: fmt.Errorf(
		"%w: %s; all workers of this batch were told, and the next batch is complete again", stepvan.ErrRefused, text)}}
	told := fmt.Errorf("the batch of this request failed at server %d, which had to refuse the request of %s: %s", s.rank, first.from.name, reason)
	for _, r := range s.workers {
		s.refuseNext(f, r, told)
	}
	return f
}

// refuseNext takes the next request of r and refuses it, unless it was refused already. Under s.mu; endRound follows
// without it.
func (s *Server) refuseNext(f *failedRound, r *remote, why error) {
	in := s.pop(r)
	if in.stage != refused && in.session == r.session {
		s.queueError(r, in.id, why)
		f.to = append(f.to, r)
	}
	if m := s.recycle(in); m != nil {
		f.held = append(f.held, m)
	}
}

// endRound releases what a failed round has held, and sends its news.
func (s *Server) endRound(f *failedRound) {
	for _, m := range f.held {
		m.Release()
	}
	for _, r := range f.to {
		s.pump(r)
	}
}
