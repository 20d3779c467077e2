package reach

import (
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van/shmvan"
)

// memories are the allocators of one instance: that of the program, and the pool.
type memories []*tensor.Allocator

// Memories finds the memory file of an address, among those of the program and of the pool.
func (e *Endpoint) Memories() shmvan.Files { return memories{e.o.Memory, e.Pool} }

// Locate implements shmvan.Files.
func (m memories) Locate(b []byte) (tensor.Place, bool) {
	for _, a := range m {
		if p, ok := a.Locate(b); ok {
			return p, true
		}
	}
	return tensor.Place{}, false
}

// Watch implements shmvan.Files.
func (m memories) Watch(dropped func(file uint64)) (stop func()) {
	stops := make([]func(), len(m))
	for i, a := range m {
		stops[i] = a.Watch(dropped)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
