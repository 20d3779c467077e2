package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// faultyVan stands between a van and its owner.
type faultyVan struct {
	van.Van // the inner one
	net     *Network
	name    string
	placer  van.Placer
	wake    func()

	views  sync.Map // of type van.View, that are out, by number
	mapped atomic.Uint64

	// guarded by net.mu
	dice    *rand.Rand
	stalled bool
	closed  bool
	known   map[van.Endpoint]*endpoint // by the inner ones
	cut     []*endpoint                // that a fault of this side has lost
	held    []*heldMessage             // in the order of Send
	ready   []van.Event                // to be reported before what the inner van reports
}

// Caps implements van.Van.
func (v *faultyVan) Caps() van.Caps {
	c := v.Van.Caps()
	c.Lossy = c.Lossy || v.net.options.LossRate > 0
	return c
}

// Probe implements van.Prober.
func (v *faultyVan) Probe(addr string) error {
	if p, ok := v.Van.(van.Prober); ok {
		return p.Probe(addr)
	}
	return nil
}

// Moved implements van.Mover.
func (v *faultyVan) Moved() bool {
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	m, ok := v.Van.(van.Mover)
	return ok && !v.stalled && m.Moved()
}

// Register implements van.Registrar.
func (v *faultyVan) Register(mem []byte) error { return v.Van.(van.Registrar).Register(mem) }

// Deregister implements van.Registrar.
func (v *faultyVan) Deregister(mem []byte) error { return v.Van.(van.Registrar).Deregister(mem) }

// RegisterAccelerator implements van.AcceleratorRegistrar.
func (v *faultyVan) RegisterAccelerator(mem []byte, fd int, offset int64) error {
	return v.Van.(van.AcceleratorRegistrar).RegisterAccelerator(mem, fd, offset)
}

// Listen implements van.Van.
func (v *faultyVan) Listen(addr string) (string, error) {
	bound, err := v.Van.Listen(addr)
	if err == nil {
		v.net.mu.Lock()
		v.net.hosts[bound] = v.name
		v.net.mu.Unlock()
	}
	return bound, err
}

// Dial implements van.Van. A connection that is made while a Partition begins is lost at once.
func (v *faultyVan) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	v.awaitWay(ctx, addr)
	inner, err := v.Van.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	e := v.outer(inner)
	v.net.mu.Lock()
	e.to = v.net.hosts[addr]
	apart := v.apart(addr)
	v.net.mu.Unlock()
	if apart {
		e.sever()
	}
	return e.public, nil
}

// awaitWay waits until no Partition separates v from addr, v is closed or ctx ends. The inner van knows the last two.
func (v *faultyVan) awaitWay(ctx context.Context, addr string) {
	net := v.net
	net.mu.Lock()
	defer net.mu.Unlock()
	for v.apart(addr) && !v.closed && ctx.Err() == nil {
		changed := net.changed
		net.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		net.mu.Lock()
	}
}

// apart reports whether a Partition separates v from the van that listens at addr. Called with net.mu held.
func (v *faultyVan) apart(addr string) bool { return v.net.parted[pair(v.name, v.net.hosts[addr])] }

// outer returns the endpoint around inner.
func (v *faultyVan) outer(inner van.Endpoint) *endpoint {
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	e := v.known[inner]
	if e == nil {
		e = &endpoint{Endpoint: inner, van: v}
		e.public = e
		if g, ok := inner.(van.Granter); ok {
			e.public = granter{e, g}
			if w, ok := inner.(van.Viewer); ok {
				e.public = viewer{granter{e, g}, w}
			}
		}
		v.known[inner] = e
	}
	return e
}

// Place implements van.Placer for the inner van.
func (v *faultyVan) Place(inner van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	return v.placer.Place(v.outer(inner).public, h, meta, dst)
}

// Poll implements van.Van.
func (v *faultyVan) Poll(events []van.Event, all bool) int {
	k, more := v.pollReady(events)
	if !more {
		return k
	}
	n := v.Van.Poll(events[k:], all)
	var found []van.Event
	for _, ev := range events[k : k+n] {
		e := v.outer(ev.Endpoint)
		ev.Endpoint = e.public
		found = e.reportFirst(&ev, found)
		found = append(found, ev)
	}
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	for _, e := range v.severed() {
		found = append(found, e.loss())
	}
	for i := 1; i < len(found) && v.net.options.Reorder; i++ {
		if found[i-1].Endpoint != found[i].Endpoint && v.dice.IntN(2) == 0 {
			found[i-1], found[i] = found[i], found[i-1]
		}
	}
	n = copy(events[k:], found)
	v.ready = append(v.ready, found[n:]...)
	return k + n
}

// pollReady sends what is held back no longer, and reports what waits in ready. While the van stands still, and when
// there is no room for events of the inner van, more is false.
func (v *faultyVan) pollReady(events []van.Event) (n int, more bool) {
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	if v.stalled {
		return 0, false
	}
	v.sendHeld()
	n = copy(events, v.ready)
	v.ready = v.ready[n:]
	return n, n < len(events)
}

// severed returns the endpoints whose loss can be reported: their operations are complete. Called with net.mu held.
func (v *faultyVan) severed() (list []*endpoint) {
	for _, e := range v.cut {
		if e.severed && e.pending == 0 {
			list = append(list, e)
		}
	}
	return list
}

// Arm implements van.Van. A van that stands still has nothing to poll: Resume wakes its owner.
func (v *faultyVan) Arm() bool {
	v.net.mu.Lock()
	stalled, ready := v.stalled, len(v.ready)+len(v.severed()) > 0
	v.net.mu.Unlock()
	return stalled || !ready && v.Van.Arm()
}

// Close implements van.Van.
func (v *faultyVan) Close() error {
	v.net.mu.Lock()
	if v.net.vans[v.name] == v {
		delete(v.net.vans, v.name)
	}
	v.closed, v.stalled = true, false
	for _, e := range v.known {
		e.end, e.severed = stepvan.ErrClosed, false
	}
	v.net.change()
	v.net.mu.Unlock()
	err := v.Van.Close()
	v.wake() // what is held back completes with the next Poll
	return err
}

// fault is err with what failed.
func (v *faultyVan) fault(op, peer string, err error) error {
	return &stepvan.OpError{Op: op, Van: v.Van.Caps().Name, Peer: peer, Err: err}
}
