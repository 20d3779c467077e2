package files

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link"
)

// Withdraw forgets a file that goes back to the system, or memory that is registered no more, and ends its grants at
// all these peers. The link calls done once when no peer reaches the memory, perhaps before Withdraw returns. The lock
// of the service is held during Withdraw, and may or may not be held during done.
func Withdraw(peers iter.Seq[*Grants], file uint64, done func()) {
	var left atomic.Int32
	left.Store(1)
	countDown := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for g := range peers {
		g.gone++
		for rights := link.Rights(1); rights <= bothRights; rights++ {
			if id := g.forget(key{file, rights}); id != 0 {
				left.Add(1)
				g.session.Withdraw(id, countDown)
			}
		}
	}
	countDown()
}

// forget returns the grant that there was, or 0.
func (g *Grants) forget(k key) link.GrantID {
	id := g.known[k].id
	delete(g.known, k)
	return id
}

// Watcher tells a service which memory files go back to the system. Make it with [Watch].
type Watcher struct {
	lock sync.Locker
	drop func(file uint64)
	stop func()

	count atomic.Int32 // of files, so that Flush takes no lock without need
	mu    sync.Mutex
	// +checklocks:mu
	files []uint64
}

// Watch calls drop with each file that goes back to the system, and holds lock meanwhile. The memory goes back only
// when the peers cannot reach it, so drop withdraws the grants. The goroutine that frees memory may hold any lock. So
// drop runs on another one, or in the next Flush.
func Watch(f Files, lock sync.Locker, drop func(file uint64)) *Watcher {
	w := &Watcher{lock: lock, drop: drop}
	w.stop = f.Watch(w.dropped)
	return w
}

// Stop ends the reports. One that has begun may still come.
func (w *Watcher) Stop() { w.stop() }

// Flush reports the files that have been dropped, so that a grant which follows finds the room. The caller holds the
// lock of the service. Without such files it is an atomic load.
func (w *Watcher) Flush() {
	if w.count.Load() == 0 {
		return
	}
	for _, file := range w.take() {
		w.drop(file)
	}
}

// dropped notes a file. No use of the service may follow, so it does not wait for one.
func (w *Watcher) dropped(file uint64) {
	if w.add(file) {
		go func() {
			w.lock.Lock()
			defer w.lock.Unlock()
			w.Flush()
		}()
	}
}

// add reports whether file is the first since take.
func (w *Watcher) add(file uint64) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, file)
	return w.count.Add(1) == 1
}

func (w *Watcher) take() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.files
	w.files = nil
	w.count.Store(0)
	return list
}
