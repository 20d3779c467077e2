package link

import (
	"sync"
	"sync/atomic"
)

// handoff is a list that any goroutine adds to and the driver empties.
type handoff[T any] struct {
	mu sync.Mutex
	// +checklocks:mu
	list  []T
	spare []T // for the next list; driver only
	count atomic.Int32
}

// add puts x behind the others.
func (h *handoff[T]) add(x T) {
	h.mu.Lock()
	h.list = append(h.list, x)
	h.count.Store(int32(len(h.list)))
	h.mu.Unlock()
}

// empty is a look without the lock.
func (h *handoff[T]) empty() bool { return h.count.Load() == 0 }

// take empties the list. The driver may give the slice back with reuse when it is done with it. Driver only.
func (h *handoff[T]) take() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list
	h.list, h.spare = h.spare[:0], nil
	h.count.Store(0)
	return list
}

// reuse takes back a slice that take returned. Driver only.
func (h *handoff[T]) reuse(list []T) {
	clear(list)
	h.spare = list[:0]
}
