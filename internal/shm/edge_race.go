//go:build race

package shm

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
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

// edgeOf returns the edge of an open file: the same one everywhere in the process.
func edgeOf(fd int) Edge {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		panic(err) // it is open
	}
	edges.Lock()
	defer edges.Unlock()
	if edges.of == nil {
		edges.of = map[uint64]*byte{}
	}
	if edges.of[st.Ino] == nil {
		edges.of[st.Ino] = new(byte)
	}
	return Edge{edges.of[st.Ino]}
}

// Publish comes before the Store that publishes.
func (e Edge) Publish() { runtime.RaceReleaseMerge(unsafe.Pointer(e.at)) }

// Consume comes behind the Load that has found something.
func (e Edge) Consume() { runtime.RaceAcquire(unsafe.Pointer(e.at)) }
