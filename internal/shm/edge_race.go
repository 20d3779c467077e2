//go:build race

package shm

import (
	"runtime"
	"sync"
	"unsafe"
)

// The race detector does not see memory outside of Go's heap, neither data nor atomics. When two
// vans of one process talk through such memory, one fills Go memory before it publishes, and the other reads it
// afterwards. The detector would take that for a race. So both sides mark their steps on a Go variable, which they find
// by the file's identity.

// Edge is an order between the goroutines that publish and those that consume.
type Edge struct{ at *byte }

var edges struct {
	sync.Mutex
	of map[uint64]*byte
}

// EdgeOf returns the edge of a file: the same one everywhere in the process.
func EdgeOf(identity uint64) Edge {
	edges.Lock()
	defer edges.Unlock()
	if edges.of == nil {
		edges.of = map[uint64]*byte{}
	}
	if edges.of[identity] == nil {
		edges.of[identity] = new(byte)
	}
	return Edge{edges.of[identity]}
}

// Publish comes before the Store that publishes.
func (e Edge) Publish() { runtime.RaceReleaseMerge(unsafe.Pointer(e.at)) }

// Consume comes behind the Load that has found something.
func (e Edge) Consume() { runtime.RaceAcquire(unsafe.Pointer(e.at)) }
