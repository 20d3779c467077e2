package postoffice

import "sync"

// deferred is a mutex with work to do after unlocking. Sending to peers and calling the program may lead back here, so
// neither happens under the lock. post does run under it, and so sets the order of messages.
type deferred struct {
	mu    sync.Mutex
	after []func()
}

func (d *deferred) lock() { d.mu.Lock() }

// later runs f after the lock is released. Under the lock only.
func (d *deferred) later(f func()) { d.after = append(d.after, f) }

// send queues f for c, and sends it after the lock is released. Under the lock only.
func (d *deferred) send(c conn, f frame) {
	c.post(f)
	d.later(c.pump)
}

func (d *deferred) unlock() {
	work := d.after
	d.after = nil
	d.mu.Unlock()
	for _, f := range work {
		f()
	}
}
