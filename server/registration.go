package server

import (
	"slices"

	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/wire"
)

// Registration is a buffer that receives pushes. Its methods may be called from
// any goroutine.
type Registration struct {
	s          *Server
	tensor     tensor.Tensor
	generation uint32
	chunks     []*chunk
	live       int // chunks that receive; guarded by Server.mu
}

// Tensor returns the registered tensor.
func (reg *Registration) Tensor() tensor.Tensor { return reg.tensor }

// Generation numbers the registrations of a server, from 1.
func (reg *Registration) Generation() uint32 { return reg.generation }

// Live reports whether the buffer still receives anything: not after
// Unregister, nor when later registrations have replaced all of it.
func (reg *Registration) Live() bool {
	reg.s.mu.Lock()
	defer reg.s.mu.Unlock()
	return reg.live > 0
}

// Unregister ends the registration: later pushes land in pooled memory, and
// the buffer is the program's again when it returns, which is when the workers that
// live have acknowledged, and those that write into it by themselves have let go. errs.ErrBusy says that a request on one of its chunks is
// unanswered; nothing has changed then. Idempotent.
func (reg *Registration) Unregister() error {
	s := reg.s
	s.mu.Lock()
	var ended []*chunk
	for _, c := range reg.chunks {
		if !c.installed() {
			continue
		}
		if c.user != nil {
			s.mu.Unlock()
			return c.busy("unregister")
		}
		ended = append(ended, c)
	}
	if len(ended) == 0 {
		s.mu.Unlock()
		return nil
	}
	if err := reg.tensor.Retain(); err == nil {
		defer reg.tensor.Release()
	}
	n, to := s.withdraw(ended)
	s.awaitRetractions(n, ended)
	s.mu.Unlock()
	return s.deliver(n, to)
}

// installed reports whether c receives. Under s.mu.
func (c *chunk) installed() bool { return c.worker.chunks[c.key] == c }

// dismiss ends chunks of which a worker needs no news, but where it has to let go. Under s.mu; the caller then
// pumps the outboxes that it returns.
func (s *Server) dismiss(chunks []*chunk) []*remote {
	var lent []*chunk
	for _, c := range chunks {
		if c.grant != 0 {
			lent = append(lent, c)
		} else {
			s.remove(c)
		}
	}
	if len(lent) == 0 {
		return nil
	}
	_, to := s.withdraw(lent)
	return to
}

// withdraw ends chunks, and queues the news for their workers. Under s.mu; the caller then delivers it.
func (s *Server) withdraw(ended []*chunk) (*notice, []*remote) {
	s.generation++
	for _, c := range ended {
		s.remove(c)
	}
	return s.announce(wire.OpWithdraw, s.generation, ended)
}

// remove ends a chunk, and its registration with the last one. Under s.mu; a worker that it is
// lent to must learn of it with Server.generation.
func (s *Server) remove(c *chunk) {
	delete(c.worker.chunks, c.key)
	s.retract(c, s.generation)
	reg := c.reg
	if reg.live--; reg.live == 0 {
		reg.tensor.Release()
		s.registrations = slices.DeleteFunc(s.registrations, func(r *Registration) bool { return r == reg })
	}
}
