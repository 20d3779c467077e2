package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// Registration holds the memory of a tensor that a program pushes or pulls again and
// again. A van that needs memory prepared (pinned, mapped) does that once for it.
type Registration struct {
	w      *Worker
	tensor tensor.Tensor
	memory span // unique, since the registration keeps the memory
}

// Register holds the memory of t until [Registration.Close]. The region of t cannot be closed meanwhile.
// Register returns the same registration for the same memory.
func (w *Worker) Register(t tensor.Tensor) (*Registration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, fmt.Errorf("register: this node was stopped: %w", stepvan.ErrClosed)
	}
	if err := t.Retain(); err != nil {
		return nil, fmt.Errorf("register: the tensor cannot be used: %w", err)
	}
	memory := spanOf(t.Bytes())
	if r := w.registrations[memory]; r != nil {
		t.Release()
		return r, nil
	}
	r := &Registration{w: w, tensor: t, memory: memory}
	w.registrations[memory] = r
	return r, nil
}

// Tensor returns the tensor that was registered first for this memory.
func (r *Registration) Tensor() tensor.Tensor { return r.tensor }

// Close ends the registration. Exchanges in flight hold the memory themselves. Close may be called again.
func (r *Registration) Close() error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.registrations[r.memory] == r {
		delete(r.w.registrations, r.memory)
		r.tensor.Release()
	}
	return nil
}
