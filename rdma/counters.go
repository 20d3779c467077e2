package rdma

import (
	"slices"

	"github.com/stepvan/stepvan/van"
)

var _ van.Counted = (*endpoint)(nil)

// Counters implements van.Counted.
func (e *endpoint) Counters() van.Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.out.past
	for _, r := range e.rails.all() {
		add(&c, r.conn.counters())
		c.Pinned += r.conn.pinned()
		if name := r.conn.device.name(); !slices.Contains(c.Devices, name) {
			c.Devices = append(c.Devices, name)
		}
	}
	c.Written, c.Fetched, c.Staged, c.Streamed = e.out.written, e.in.fetch.read, e.in.fetch.unstaged, e.out.streamed
	return c
}

func (c *connection) counters() van.Counters {
	q := c.qp.Counters()
	return van.Counters{
		Requests: q.Requests, Doorbells: q.Doorbells, Signaled: q.Signaled, Receives: q.Receives,
		Completions: c.completions.Load(),
	}
}

// add adds what a queue pair counts.
func add(c *van.Counters, o van.Counters) {
	c.Requests += o.Requests
	c.Doorbells += o.Doorbells
	c.Signaled += o.Signaled
	c.Receives += o.Receives
	c.Completions += o.Completions
}

// Registered is implemented by this van.
type Registered interface {
	// Registered returns how many bytes are registered with the devices, and in how many pieces. It may be called
	// concurrently.
	Registered() (bytes int64, regions int)
}

var _ Registered = (*rdmaVan)(nil)

// Registered implements Registered.
func (v *rdmaVan) Registered() (bytes int64, regions int) {
	t := v.regions.table.Load()
	for _, r := range t.list {
		bytes += int64(len(r.mem))
	}
	return bytes, len(t.list)
}
