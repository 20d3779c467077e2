package vantest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// node is a van under test with everything that is known about its endpoints.
type node struct {
	p        *probe
	van      van.Van
	events   []van.Event
	closed   atomic.Bool
	detached atomic.Bool // not polled by probe.poll, but by a goroutine of its own or not at all
	bell     chan struct{}

	mu       sync.Mutex
	sides    map[van.Endpoint]*side
	accepted []*side // not claimed by connect yet
	ops      van.OpID
	refused  map[van.OpID]bool // operations that Send rejected
	wild     bool              // any peer that connects from here on may say anything
}

// node makes a van that polls batches of up to batch events.
func (p *probe) node(batch int) *node {
	n := &node{p: p, events: make([]van.Event, batch), sides: map[van.Endpoint]*side{}, refused: map[van.OpID]bool{}, bell: make(chan struct{}, 1)}
	var err error
	n.van, err = p.f.New(n, n.wake)
	p.must(err, "make a van")
	p.nodes = append(p.nodes, n)
	return n
}

func (p *probe) pair() (a, b *node) { return p.node(16), p.node(16) }

// wake is what the van under test calls.
func (n *node) wake() {
	n.p.ring()
	select {
	case n.bell <- struct{}{}:
	default:
	}
}

// pump polls n on a goroutine of its own until over, which somebody calls wake for.
func (n *node) pump(over func() bool) {
	n.detached.Store(true)
	n.p.spawn(func() {
		defer n.detached.Store(false)
		for !over() && n.p.ctx.Err() == nil {
			if n.poll(true) == 0 {
				n.idle()
			} else {
				n.p.ring() // the case may wait for what has happened
			}
		}
	})
}

// idle waits until the van may have something to poll, unless it has.
func (n *node) idle() {
	if !n.van.Arm() {
		return
	}
	if fd := n.van.FD(); fd >= 0 {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20)
		return
	}
	select {
	case <-n.bell:
	case <-n.p.ctx.Done():
	}
}

// listen returns an address at which n can be dialed.
func (n *node) listen() string {
	addr, err := n.van.Listen(n.p.f.Listen)
	n.p.must(err, "listen")
	return addr
}

// connect joins two vans and returns both sides.
func (p *probe) connect(from, to *node) (out, in *side) { return p.dial(from, to, to.listen()) }

func (p *probe) dial(from, to *node, addr string) (out, in *side) {
	ep, err := from.van.Dial(p.ctx, addr)
	p.must(err, "dial "+addr)
	p.salts++
	out = from.adopt(ep)
	out.out, out.in = 2*p.salts, 2*p.salts+1
	p.until("EventAccepted of a dialed connection", func() bool { in = to.claim(); return in != nil })
	in.out, in.in = out.in, out.out
	in.peer, out.peer = out, in
	return out, in
}

// claim returns an accepted endpoint that nobody has claimed.
func (n *node) claim() *side {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.accepted) == 0 {
		return nil
	}
	s := n.accepted[0]
	n.accepted = n.accepted[1:]
	return s
}

// accepts returns all endpoints that were accepted and not claimed.
func (n *node) accepts() []*side {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted
}

func (n *node) adopt(ep van.Endpoint) *side {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.side(ep)
}

// side finds or makes the record of ep. Called with mu held.
func (n *node) side(ep van.Endpoint) *side {
	s := n.sides[ep]
	if s == nil {
		s = newSide(n, ep)
		s.allow.faulty, s.allow.stranger = n.wild, n.wild
		n.sides[ep] = s
	}
	return s
}

func (n *node) poll(all bool) int {
	k := n.van.Poll(n.events, all)
	if k < 0 || k > len(n.events) {
		n.p.fail(10, "Poll of %d events returned %d", len(n.events), k)
	}
	n.p.relay() // what Place has found comes first
	for i := range k {
		ev := n.events[i]
		n.events[i] = van.Event{}
		n.handle(ev)
	}
	return k
}

func (n *node) handle(ev van.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ev.Endpoint == nil {
		n.p.fail(1, "event of kind %d without endpoint", ev.Kind)
	}
	s := n.side(ev.Endpoint)
	switch ev.Kind {
	case van.EventAccepted:
		s.onAccepted()
	case van.EventCompletion:
		s.onCompletion(ev.Op, ev.Err)
	case van.EventMessage:
		s.onMessage(ev.Delivery)
	case van.EventLost:
		s.onLost(ev.Err)
	case van.EventDetached:
		s.onDetached()
	default:
		n.p.fail(1, "event of unknown kind %d", ev.Kind)
	}
}

// Place implements van.Placer for the van under test. It must not end the case
// from inside Poll, so a violation waits until Poll has returned.
func (n *node) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) (_ [][]byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			n.p.note(r)
			err = errors.New("vantest: the case has failed")
		}
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.side(ep).place(h, meta, dst)
}

// close closes the van, twice.
func (n *node) close() {
	n.mu.Lock()
	for _, s := range n.sides {
		s.end.closed, s.allow.faulty = true, true
	}
	n.mu.Unlock()
	n.closed.Store(true)
	for range 2 {
		if err := n.van.Close(); err != nil {
			n.p.fail(6, "Close: %v", err)
		}
	}
}

// outstanding counts accepted operations without completion.
func (n *node) outstanding() (k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sides {
		k += len(s.issued)
	}
	return k
}

func (n *node) releaseAll() {
	n.mu.Lock()
	sides := make([]*side, 0, len(n.sides))
	for _, s := range n.sides {
		sides = append(sides, s)
	}
	n.mu.Unlock()
	for _, s := range sides {
		s.release(1 << 30)
	}
}

func (n *node) describe(i int) (text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sides {
		text += fmt.Sprintf("; van %d, peer %s: %d accepted, %d completed, %d delivered, %d held, lost %v",
			i, s.ep.Peer(), s.sent, s.completed, s.delivered, len(s.held), s.end.lost)
	}
	return text
}

// noPlacer refuses everything.
type noPlacer struct{}

func (noPlacer) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, fmt.Errorf("no payload expected")
}
