package server

import (
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor that a program answers with again and again.
type Registration struct {
	tensor tensor.Tensor
	held   *registry.Registration
	closed atomic.Bool
}

// Register holds the memory of t until [Registration.Close]. The region of t cannot be closed meanwhile. Where a device
// reaches only memory that is registered with it, Register does that, for any part of the tensor. It may block for long
// then, half a second for a GiB. Memory that the device cannot reach goes another way. Other errors are
// stepvan.ErrClosed, that of [tensor.Tensor.Check], and what says what the system lacks. The same memory may be
// registered several times. Any goroutine may call Register.
func (s *Server) Register(t tensor.Tensor) (*Registration, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed("register")
	}
	held, err := s.transport.Registry.Register(t)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	return &Registration{tensor: t, held: held}, nil
}

// Tensor returns the tensor that was registered.
func (r *Registration) Tensor() tensor.Tensor { return r.tensor }

// Close ends the registration. It may block for as long as Register. Responses in flight hold the memory themselves.
// Close may be called again.
func (r *Registration) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if err := r.held.Close(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// deregister closes the registration of a buffer that has ended or, where devices take long for it, leaves that to
// deregisterEnded. Under Server.mu.
func (t *bufferTable) deregister(b *ReceiveBuffer) {
	if !t.s.transport.Registry.Needed() {
		_ = b.held.Close()
		return
	}
	t.ended = append(t.ended, b)
	if t.s.closed {
		go t.s.deregisterEnded()
	}
}

// deregisterEnded closes the registrations of the receive buffers that have ended. It may block. Without Server.mu.
func (s *Server) deregisterEnded() {
	s.mu.Lock()
	ended := s.buffers.ended
	s.buffers.ended = nil
	s.mu.Unlock()
	for _, b := range ended {
		if err := b.held.Close(); err != nil {
			s.opt.Log.Warn().Err(err).Msg("a device did not give up the memory of a receive buffer")
		}
	}
}
