package rdma

import (
	"fmt"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
)

// device is what a van has on one device.
type device struct {
	*sharedDevice
	index   int // in rdmaVan.devices
	library *verbs.Library
	pd      *verbs.PD
	wake    *verbs.CompletionChannel
	iWARP   bool               // it needs more rights for reads
	queues  []*completionQueue // guarded by members.mu
}

// softRoCE is the vendor that soft-RoCE names.
const softRoCE = 0xffffff

// doubtsReads reports whether a read that is said to be complete may not be. When soft-RoCE loses a part of the answer,
// it may report success, and shuts the queue pair (Linux 6.1). A request behind the read is flushed then.
func (d *device) doubtsReads() bool { return d.attributes.VendorID == softRoCE }

func newDevice(l *verbs.Library, s *sharedDevice, index int) (*device, error) {
	d := &device{sharedDevice: s, index: index, library: l}
	var err error
	if d.pd, err = s.device.NewPD(); err != nil {
		return nil, err
	}
	if d.wake, err = s.device.NewCompletionChannel(); err != nil {
		_ = d.pd.Close()
		return nil, err
	}
	return d, nil
}

// close frees everything, after the connections.
func (d *device) close() {
	for _, q := range d.queues {
		_ = q.cq.Close()
	}
	d.queues = nil
	_ = d.wake.Close()
	_ = d.pd.Close()
	process.release(d.sharedDevice)
}

// completionQueue is shared by connections, each of which reserves room for all that it may have posted. Then it cannot
// overflow.
type completionQueue struct {
	cq     *verbs.CQ
	device *device
	free   int         // room that nobody has reserved; guarded by members.mu
	armed  bool        // it will wake the channel; the poller's
	failed atomic.Bool // the device or the library says so
}

// connectionsPerQueue is how many connections a completion queue is made for, where the device allows.
const connectionsPerQueue = 16

// reserve finds a queue with room for n completions, or returns nil. members.mu is held.
func (d *device) reserve(n int) *completionQueue {
	for _, q := range d.queues {
		if q.free >= n && !q.failed.Load() {
			q.free -= n
			return q
		}
	}
	return nil
}

// newQueue makes a queue with n completions reserved. It may take long.
func (d *device) newQueue(n int) (*completionQueue, error) {
	size := min(n*connectionsPerQueue, d.attributes.CQEntries)
	if size < n {
		return nil, fmt.Errorf("%s: completion queues have %d entries (want %d): lower Options.SendRequests: %w", d.name(), size, n, stepvan.ErrNotSupported)
	}
	cq, err := d.device.NewCQ(size, d.wake, 0)
	if err != nil {
		return nil, err
	}
	return &completionQueue{cq: cq, device: d, free: size - n}, nil
}
