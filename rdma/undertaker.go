package rdma

import (
	"io"
	"slices"
	"sync"
	"time"
)

// undertaker ends connections and rails, on a goroutine that runs while there are any to end: the destruction of a
// queue pair may block.
type undertaker struct {
	v       *rdmaVan
	mu      sync.Mutex
	list    []*endpoint
	rails   []*retreat
	unused  []io.Closer    // memory windows and regions, in order
	running sync.WaitGroup // its goroutine
	alive   bool
	ended   bool // nothing begins any more
}

// add hands an endpoint over. Adding again has no effect. Concurrent.
func (u *undertaker) add(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.list, e) {
		u.list = append(u.list, e)
	}
	u.begin()
}

// addRail hands over a rail of which others are left. Concurrent.
func (u *undertaker) addRail(r *rail) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.ContainsFunc(u.rails, func(x *retreat) bool { return x.r == r }) {
		u.rails = append(u.rails, &retreat{r: r, phase: flushing})
	}
	u.begin()
}

func (u *undertaker) removeRail(r *rail) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rails = slices.DeleteFunc(u.rails, func(x *retreat) bool { return x.r == r })
}

// retreats lists the rails that are to be ended.
func (u *undertaker) retreats() []*retreat {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.rails)
}

// free hands over a region, or a window, that nobody uses. A window comes before the region that it was bound to.
// Concurrent.
func (u *undertaker) free(c io.Closer) {
	if !u.take(c) {
		_ = c.Close()
	}
}

// take reports whether c will be closed. Once the van has ended, the caller does that.
func (u *undertaker) take(c io.Closer) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return false
	}
	u.unused = append(u.unused, c)
	u.begin()
	return true
}

// begin starts the goroutine. mu is held.
func (u *undertaker) begin() {
	if !u.alive && !u.ended {
		u.alive = true
		u.running.Go(u.run)
	}
}

// finish waits until all is done that was handed over. The van has no endpoint then that is not closed.
func (u *undertaker) finish() {
	for !u.isIdle() {
		u.running.Wait()
	}
	u.running.Wait()
}

// isIdle reports whether there is nothing to end, so that nothing begins any more.
func (u *undertaker) isIdle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = !u.alive
	return u.ended
}

// next lists what is to be ended, and ends the goroutine when there is nothing.
func (u *undertaker) next() (ending []*endpoint, unused []io.Closer, alive bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.alive = len(u.list)+len(u.rails)+len(u.unused) > 0
	unused, u.unused = u.unused, nil
	return slices.Clone(u.list), unused, u.alive
}

func (u *undertaker) remove(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = slices.DeleteFunc(u.list, func(x *endpoint) bool { return x == e })
}

func (u *undertaker) run() {
	pause := 50 * time.Microsecond
	for {
		list, unused, alive := u.next()
		if !alive {
			return
		}
		for _, r := range unused {
			_ = r.Close()
		}
		moved := len(unused) > 0
		for _, e := range list {
			moved = e.end.advance() || moved
		}
		for _, t := range u.retreats() {
			moved = t.advance() || moved
		}
		if moved {
			pause = 50 * time.Microsecond
			continue
		}
		u.v.poller.takeCompletions()
		time.Sleep(pause) // until the device is done, of which nothing else tells where nobody polls
		pause = min(2*pause, 5*time.Millisecond)
	}
}
