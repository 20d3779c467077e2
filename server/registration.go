package server

import (
	"context"
	"slices"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// ReceiveBuffer is a buffer that receives pushes. Its methods may be called from
// any goroutine.
type ReceiveBuffer struct {
	s          *Server
	tensor     tensor.Tensor
	generation uint32
	chunks     []*chunk
	live       int       // chunks that receive; guarded by Server.mu
	ended      bool      // none does, and notices has what that waits for; guarded by Server.mu
	notices    []*notice // that are under way; guarded by Server.mu
}

// PendingError is the error of RegisterRecvBuffer when a worker takes longer than Options.Patience to
// acknowledge the registration, or to let go of what it replaces. The buffer is registered all the same: it receives pushes, and
// is the server's until Registration.Unregister. What was replaced may be written to, and its region cannot be closed, until
// Registration.Wait has returned nil:
//
//	reg, err := s.RegisterRecvBuffer(buffer, ranks, keys)
//	var pending *server.PendingError
//	if errors.As(err, &pending) {
//		reg = pending.Registration
//		err = reg.Wait(ctx)
//	}
//
// A program that gives up instead ends the registration with Unregister, or with the server.
type PendingError struct {
	Registration *ReceiveBuffer
	Err          error // names a worker that is waited for, and wraps context.DeadlineExceeded
}

// Error names the worker that is waited for.
func (e *PendingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Err }

// Tensor returns the registered tensor.
func (reg *ReceiveBuffer) Tensor() tensor.Tensor { return reg.tensor }

// Generation numbers the registrations of a server, from 1.
func (reg *ReceiveBuffer) Generation() uint32 { return reg.generation }

// Live reports whether the buffer still receives anything: not after
// Unregister, nor when later registrations have replaced all of it.
func (reg *ReceiveBuffer) Live() bool {
	reg.s.mu.Lock()
	defer reg.s.mu.Unlock()
	return reg.live > 0
}

// Unregister ends the registration: later pushes land in pooled memory, and
// the buffer is the program's again when it returns nil, which is when the workers that
// live have acknowledged, and those that write into it by themselves have let go or are dead.
//
// stepvan.ErrBusy says that a request on one of its chunks is unanswered; nothing has changed then. An error that wraps
// context.DeadlineExceeded says that a worker, which it names, took longer than Options.Patience: the registration has
// ended, but the buffer is not the program's yet. Its region cannot be closed while somebody reaches it. Wait or another
// Unregister goes on waiting. Idempotent: also for a registration that others have replaced.
func (reg *ReceiveBuffer) Unregister() error {
	if err := reg.end(); err != nil {
		return err
	}
	ctx, cancel := reg.s.patience()
	defer cancel()
	return reg.await(ctx, "unregister")
}

// Wait drives the node until the workers that live have acknowledged the registration, and have let go of the chunks
// that it replaces; after Unregister, until the buffer is the program's again. The death of a worker ends the
// wait for it. The error wraps ctx.Err(), and names a worker that is waited for, when ctx ends first: then it can be
// called again. stepvan.ErrClosed: the node was closed.
func (reg *ReceiveBuffer) Wait(ctx context.Context) error {
	return reg.await(ctx, "wait for a registration")
}

// await delivers what is under way.
func (reg *ReceiveBuffer) await(ctx context.Context, op string) error {
	s := reg.s
	for {
		s.mu.Lock()
		reg.notices = slices.DeleteFunc(reg.notices, func(n *notice) bool { return n.done.IsSet() })
		if len(reg.notices) == 0 {
			s.mu.Unlock()
			return nil
		}
		n := reg.notices[0]
		s.mu.Unlock()
		if err := s.deliver(ctx, op, n); err != nil {
			return err
		}
	}
}

// patience limits a wait that the program has set no limit to.
func (s *Server) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.opt.Patience)
}

// end has no chunk receive any more. With an error nothing has changed.
func (reg *ReceiveBuffer) end() error {
	s := reg.s
	s.mu.Lock()
	if reg.ended {
		s.mu.Unlock()
		return nil
	}
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
	n := newNotice()
	if len(ended) > 0 {
		n = s.withdraw(ended)
	}
	s.awaitRetractions(n, reg.chunks)
	reg.ended, reg.notices = true, append(reg.notices, n)
	s.mu.Unlock()
	n.settle(s)
	return nil
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
	return s.withdraw(lent).to
}

// withdraw ends chunks, and queues the news for their workers. Under s.mu; the caller then settles and delivers it.
func (s *Server) withdraw(ended []*chunk) *notice {
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
	delete(c.worker.unlent, c)
	s.retract(c, s.generation)
	reg := c.reg
	if reg.live--; reg.live == 0 {
		reg.tensor.Release()
		s.registrations = slices.DeleteFunc(s.registrations, func(r *ReceiveBuffer) bool { return r == reg })
	}
}
