package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor that a program answers with again and again.
type Registration struct {
	s      *Server
	tensor tensor.Tensor
	held   *registry.Registration
}

// Register holds the memory of t until [Registration.Close] or [Server.Close]. The region of t cannot be closed
// meanwhile. Where a device reaches only memory that is registered with it, Register does that, for any part of the
// tensor. It may block for long then, half a second for a GiB. Memory that the device cannot reach goes another way.
// Other errors are stepvan.ErrClosed, that of [tensor.Tensor.Check], and what says what the system lacks. The same
// memory may be registered several times. Any goroutine may call Register.
func (s *Server) Register(t tensor.Tensor) (*Registration, error) {
	if s.isClosed() {
		return nil, errClosed("register")
	}
	held, err := s.transport.Registry.Register(t)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	r := &Registration{s: s, tensor: t, held: held}
	if !s.registrations.add(r) {
		_ = held.Close()
		return nil, errClosed("register")
	}
	return r, nil
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Tensor returns the tensor that was registered.
func (r *Registration) Tensor() tensor.Tensor { return r.tensor }

// Registered reports whether a device reaches the memory. It is false where no device needs that.
func (r *Registration) Registered() bool { return r.held.Registered() }

// Close ends the registration. It may block for as long as Register. Responses in flight hold the memory themselves.
// Close may be called again.
func (r *Registration) Close() error {
	if !r.s.registrations.remove(r) {
		return nil
	}
	if err := r.held.Close(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// registrationTable has the registrations of the program.
type registrationTable struct {
	s    *Server
	list map[*Registration]struct{} // Server.mu guards it
}

// add notes r, unless the server was closed meanwhile.
func (t *registrationTable) add(r *Registration) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.closed {
		return false
	}
	t.list[r] = struct{}{}
	return true
}

// remove reports whether the registration was not over before.
func (t *registrationTable) remove(r *Registration) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	_, is := t.list[r]
	delete(t.list, r)
	return is
}

// end ends all registrations. It may block. Without Server.mu.
func (t *registrationTable) end() (err error) {
	t.s.mu.Lock()
	all := slices.Collect(maps.Keys(t.list))
	t.s.mu.Unlock()
	for _, r := range all {
		err = errors.Join(err, r.Close())
	}
	return err
}

// deregister closes the registration of a buffer that has ended or, where devices take long for it, leaves that to
// deregisterEnded. Under Server.mu.
func (t *bufferTable) deregister(b *ReceiveBuffer) {
	if !t.s.transport.Registry.Needed() {
		_ = b.closeHeld()
		return
	}
	t.ended = append(t.ended, b)
	if t.s.closed {
		go t.deregisterEnded()
	}
}

// closeHeld closes the registrations of a buffer. It may block.
func (b *ReceiveBuffer) closeHeld() (err error) {
	if b.held != nil {
		err = b.held.Close()
	}
	if b.mirror != nil {
		err = errors.Join(err, b.mirror.held.Close())
	}
	return err
}

// deregisterEnded closes the registrations of the receive buffers that have ended. It may block. Without Server.mu.
func (t *bufferTable) deregisterEnded() {
	t.s.mu.Lock()
	ended := t.ended
	t.ended = nil
	t.s.mu.Unlock()
	for _, b := range ended {
		if err := b.closeHeld(); err != nil {
			t.s.opt.Log.Warn().Err(err).Msg("a device did not give up the memory of a receive buffer")
		}
	}
}
