package worker

import (
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link/files"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor that a program pushes or pulls again and again.
type Registration struct {
	w      *Worker
	tensor tensor.Tensor
	held   *registry.Registration
}

// Register holds the memory of t until [Registration.Close]. The region of t cannot be closed meanwhile. Where a device
// reaches only memory that is registered with it, Register does that, for any part of the tensor. It may block for long
// then, half a second for a GiB. Memory that the device cannot reach goes another way. An error other than
// [stepvan.ErrClosed] says what the system lacks. The same memory may be registered several times. Any goroutine may
// call Register.
func (w *Worker) Register(t tensor.Tensor) (*Registration, error) {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return nil, errRegisterClosed
	}
	held, err := w.link.Registry.Register(t)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	r := &Registration{w: w, tensor: t, held: held}
	if err := w.addRegistration(r); err != nil {
		_ = held.Close()
		return nil, err
	}
	return r, nil
}

var errRegisterClosed = fmt.Errorf("register: this node was stopped: %w", stepvan.ErrClosed)

// addRegistration notes r, which holds the tensor until no server reaches it.
func (w *Worker) addRegistration(r *Registration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errRegisterClosed
	}
	if err := r.tensor.Retain(); err != nil {
		return fmt.Errorf("register: the tensor cannot be used: %w", err)
	}
	w.registrations[r] = struct{}{}
	return nil
}

// Tensor returns the tensor that was registered.
func (r *Registration) Tensor() tensor.Tensor { return r.tensor }

// Registered reports whether a device reaches the memory. It is false where no device needs that.
func (r *Registration) Registered() bool { return r.held.Registered() }

// Close ends the registration. It may block for as long as Register. Exchanges in flight hold the memory themselves.
// The region of the tensor can be closed when no server reaches the memory any more. Close may be called again.
func (r *Registration) Close() error {
	if !r.w.endRegistration(r) {
		return nil
	}
	err := r.held.Close() // from here on no request finds the memory, unless it is registered elsewhere
	r.w.withdrawMemory(endedMemory{r.held.ID(), r.tensor.Release})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// endRegistration reports whether the registration was not over before.
func (w *Worker) endRegistration(r *Registration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.registrations[r]
	delete(w.registrations, r)
	return is
}

// endedMemory is memory that is registered no more, and that servers may still reach.
type endedMemory struct {
	id   uint64 // as the registry numbers it
	done func() // no server reaches it
}

// withdrawMemory ends the grants of m when no request lends a part of it. The link calls done behind the last grant, or
// withdrawMemory does.
func (w *Worker) withdrawMemory(m endedMemory) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lender.ended = append(w.lender.ended, m)
	w.withdrawEnded()
}

// withdrawEnded ends the grants of memory that no request lends any more. Under Worker.mu.
func (w *Worker) withdrawEnded() {
	w.lender.ended = slices.DeleteFunc(w.lender.ended, func(m endedMemory) bool {
		if w.lends(m.id) {
			return false
		}
		files.Withdraw(w.lender.grants(), m.id, m.done)
		return true
	})
}

// lends reports whether a request lends a part of registered memory. Under Worker.mu.
func (w *Worker) lends(id uint64) bool {
	for _, r := range w.exchanges.requests.All() {
		if g := r.server.granted.Granted(id, allRights); g != 0 && r.state&lentOut != 0 && r.plan.names(g) {
			return true
		}
	}
	return false
}
