package peer

import (
	"sync"
	"sync/atomic"
)

// task is a copy in chunks, which several goroutines may share. It is used again and again.
type task struct {
	next   *task         // in the queue of the movers
	queued bool          // in that queue, which may be so after the last chunk. Under movers.mu
	later  *task         // in Peer.soon
	state  atomic.Uint64 // how many chunks there are, and below taken how many somebody works on, or did
	left   atomic.Int32  // chunks that are not finished
	stop   atomic.Bool   // chunks that nobody has taken are skipped
	copy   func(chunk int)
	done   func() // after the last chunk, without locks
}

// takenBits is the width of the lower part of task.state.
const takenBits = 32

// reset prepares the task to be run. It is not running.
func (t *task) reset(chunks int) {
	t.stop.Store(false)
	t.left.Store(int32(chunks))
	t.state.Store(uint64(chunks) << takenBits) // last: a mover that still looks at the task may take a chunk from here on
}

// claim takes a chunk that nobody has taken. The number of chunks belongs to the run that the chunk is taken of. A
// mover may be late, and look at a task that is used again for more chunks.
func (t *task) claim() (chunk int, ok bool) {
	s := t.state.Add(1)
	i := uint32(s) - 1
	return int(i), i < uint32(s>>takenBits)
}

// help works on the task until nobody needs to begin another chunk.
func (t *task) help() {
	for {
		i, ok := t.claim()
		if !ok {
			return
		}
		if !t.stop.Load() {
			t.copy(i)
		}
		if t.left.Add(-1) == 0 {
			t.done()
			return
		}
	}
}

// isRunning reports whether there are chunks that are not finished.
func (t *task) isRunning() bool { return t.left.Load() > 0 }

// hasWork reports whether there are chunks that nobody has taken.
func (t *task) hasWork() bool { s := t.state.Load(); return uint32(s) < uint32(s>>takenBits) }

// size is how many chunks there are.
func (t *task) size() int { return int(t.state.Load() >> takenBits) }

// movers are the goroutines that copy. They start when they are needed, and stay until close.
type movers struct {
	most      int
	onPanic   func()
	goroutine sync.WaitGroup
	looks     atomic.Uint32 // of programs that wait for them, in vain

	mu sync.Mutex
	// +checklocks:mu
	first, last *task
	// +checklocks:mu
	started, idle int
	// +checklocks:mu
	closed bool
	wake   *sync.Cond
}

func (v *movers) init(most int, onPanic func()) {
	v.most, v.onPanic = most, onPanic
	v.wake = sync.NewCond(&v.mu)
}

// start has the movers work on a task.
func (v *movers) start(t *task) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.enqueue(t)
	want := min(t.size(), v.most)
	for range want - v.idle {
		if v.started == v.most || v.closed {
			break
		}
		v.started++
		v.goroutine.Go(v.work)
	}
	for range min(want, v.idle) {
		v.wake.Signal()
	}
}

// share has the movers help with a task that the caller works on. A single mover does not help:
// on two cores, where the other peer waits too, it was measured to make a Put of 16 MiB slower.
func (v *movers) share(t *task, chunks int) {
	t.reset(chunks)
	if chunks > 1 && v.most > 1 {
		v.start(t)
	}
}

// enqueue puts a task into the queue. Under mu.
//
// +checklocks:v.mu
func (v *movers) enqueue(t *task) {
	if t.queued {
		return
	}
	t.next, t.queued = nil, true
	if v.first == nil {
		v.first = t
	} else {
		v.last.next = t
	}
	v.last = t
}

// work is a mover.
func (v *movers) work() {
	defer v.onPanic()
	for t := v.take(); t != nil; t = v.take() {
		t.help()
	}
}

// take waits for a task that has work. It returns nil at the end.
func (v *movers) take() *task {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		for v.first != nil {
			t := v.first
			if t.hasWork() {
				return t
			}
			v.first, t.next, t.queued = t.next, nil, false
		}
		if v.closed {
			return nil
		}
		v.idle++
		v.wake.Wait()
		v.idle--
	}
}

// close ends the movers after the tasks that were started, and waits for them.
func (v *movers) close() {
	v.mu.Lock()
	v.closed = true
	v.wake.Broadcast()
	v.mu.Unlock()
	v.goroutine.Wait()
}
