package rdma

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
)

// members are the rails of a van, with their completion queues.
type members struct {
	making  sync.Mutex // of completion queues, one at a time; mu is for the driver, which must not wait for that
	mu      sync.Mutex // a leaf; it guards what follows, and the queues of the devices
	closed  bool
	rails   map[uint32]*rail // by number, until their memory is freed
	numbers uint32           // given out so far
	queues  atomic.Pointer[[]*completionQueue]
	calls   sync.WaitGroup // of Dial and Listen that are under way; Add under mu, and not once the van is closed
}

func (m *members) init() {
	m.rails = map[uint32]*rail{}
	m.queues.Store(new([]*completionQueue))
}

// nextNumber numbers a rail.
func (m *members) nextNumber() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers++
	return m.numbers
}

// join takes in a rail. Its completions find it from here on.
func (m *members) join(r *rail) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return stepvan.ErrClosed
	}
	m.rails[r.number] = r
	return nil
}

// forget has no further completion find the rail.
func (m *members) forget(r *rail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rails, r.number)
}

func (m *members) find(number uint32) *rail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rails[number]
}

// all lists the rails that fit.
func (m *members) all(fits func(*rail) bool) (list []*rail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rails {
		if fits(r) {
			list = append(list, r)
		}
	}
	return list
}

// reserve finds room for the completions of a connection. made says that the poller has another queue to arm.
func (m *members) reserve(d *device, n int) (q *completionQueue, made bool, err error) {
	m.making.Lock()
	defer m.making.Unlock()
	if old := m.queueWith(d, n); old != nil {
		return old, false, nil
	}
	if q, err = d.newQueue(n); err != nil {
		return nil, false, err
	}
	m.addQueue(q)
	return q, true, nil
}

func (m *members) queueWith(d *device, n int) *completionQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return d.reserve(n)
}

func (m *members) addQueue(q *completionQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q.device.queues = append(q.device.queues, q)
	list := append(slices.Clone(*m.queues.Load()), q)
	m.queues.Store(&list)
}

// unreserve gives the room back.
func (m *members) unreserve(c *connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.queue != nil {
		c.queue.free += c.reserved
		c.reserved = 0
	}
}

// beginCall reports whether the van is open. Then its devices stay so until calls.Done.
func (m *members) beginCall() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.calls.Add(1)
	return true
}

// close takes in nobody any more, and waits for the calls.
func (m *members) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.calls.Wait()
}
