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
// live have acknowledged. errs.ErrBusy says that a request on one of its chunks is
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
	// Held until everybody knows, for vans on which a worker writes by itself.
	if err := reg.tensor.Retain(); err == nil {
		defer reg.tensor.Release()
	}
	for _, c := range ended {
		s.remove(c)
	}
	s.generation++
	n, to := s.announce(wire.OpWithdraw, s.generation, ended)
	s.mu.Unlock()
	return s.deliver(n, to)
}

// installed reports whether c receives. Under s.mu.
func (c *chunk) installed() bool { return c.worker.chunks[c.key] == c }

// remove ends a chunk, and its registration with the last one. Under s.mu.
func (s *Server) remove(c *chunk) {
	delete(c.worker.chunks, c.key)
	reg := c.reg
	if reg.live--; reg.live == 0 {
		reg.tensor.Release()
		s.registrations = slices.DeleteFunc(s.registrations, func(r *Registration) bool { return r == reg })
	}
}
