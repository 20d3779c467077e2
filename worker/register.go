package worker

import (
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan/tensor"
)

// memory identifies what a registration holds. The address stays unique because
// the registration keeps the memory.
type memory struct {
	start uintptr
	bytes int
}

// Registration holds the memory of a tensor that is pushed or pulled again and
// again, so that vans which need it prepared (pinned, mapped) do that once.
type Registration struct {
	w      *Worker
	tensor tensor.Tensor
	memory memory
}

// Register holds t's memory until Close of what it returns; its region cannot be closed meanwhile.
// Registering the same memory again returns the same registration.
func (w *Worker) Register(t tensor.Tensor) (*Registration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errRegisterClosed
	}
	if err := t.Retain(); err != nil {
		return nil, fmt.Errorf("register: the tensor cannot be used: %w", err)
	}
	b := t.Bytes()
	m := memory{start: uintptr(unsafe.Pointer(unsafe.SliceData(b))), bytes: len(b)}
	if r := w.registrations[m]; r != nil {
		t.Release()
		return r, nil
	}
	r := &Registration{w: w, tensor: t, memory: m}
	w.registrations[m] = r
	return r, nil
}

// Tensor returns the tensor that was registered first for this memory.
func (r *Registration) Tensor() tensor.Tensor { return r.tensor }

// Close lets go of the memory. Requests in flight hold it on their own account. Idempotent.
func (r *Registration) Close() error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.registrations[r.memory] == r {
		delete(r.w.registrations, r.memory)
		r.tensor.Release()
	}
	return nil
}
