package vantest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// node is a van under test with everything that is known about its endpoints.
type node struct {
	t      *trial
	van    van.Van
	events []van.Event
	closed atomic.Bool
	paused atomic.Bool   // the driver does not poll it: a goroutine of its own does, or nobody
	wakeUp chan struct{} // written by a van without FD

	mu       sync.Mutex
	sides    map[van.Endpoint]*side
	accepted []*side // not handed out by claim yet
	ops      van.OpID
	hostile  bool // any peer that connects from here on may say anything
}

// pause stops the driver from polling the nodes, until resume.
func pause(nodes ...*node) {
	for _, n := range nodes {
		n.paused.Store(true)
	}
}

func resume(nodes ...*node) {
	for _, n := range nodes {
		n.paused.Store(false)
	}
}

// wake is what the van under test calls.
func (n *node) wake() {
	n.t.ring()
	notify(n.wakeUp)
}

// pump polls n on a goroutine of its own until over, which somebody calls wake for.
func (n *node) pump(over func() bool) {
	pause(n)
	n.t.spawn(func() {
		defer resume(n)
		for !over() && n.t.ctx.Err() == nil {
			switch {
			case n.poll(true) > 0:
				n.t.ring() // the case may wait for what has happened
			case !n.van.Arm():
			case n.van.FD() >= 0:
				readable(20*time.Millisecond, n.van.FD())
			default:
				select {
				case <-n.wakeUp:
				case <-n.t.ctx.Done():
				}
			}
		}
	})
}

// fits is the largest meta of the suite that the van can carry.
func (n *node) fits(meta int) int { return min(meta, n.van.Caps().MaxMeta) }

// listen returns an address at which n can be dialed.
func (n *node) listen() string {
	addr, err := n.van.Listen(n.t.f.Listen)
	n.t.must(err, "listen")
	return addr
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

// accept waits for an accepted endpoint.
func (n *node) accept(what string) (s *side) {
	n.t.until("EventAccepted of "+what, func() bool { s = n.claim(); return s != nil })
	return s
}

// unclaimed returns all endpoints that were accepted and not claimed.
func (n *node) unclaimed() []*side {
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
		s.allow.failures, s.allow.hostile = n.hostile, n.hostile
		n.sides[ep] = s
	}
	return s
}

func (n *node) poll(all bool) int {
	k := n.van.Poll(n.events, all)
	if k < 0 || k > len(n.events) {
		n.t.fail(10, "Poll of %d events returned %d", len(n.events), k)
	}
	n.t.relay() // what Place has found comes first
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
		n.t.fail(1, "event of kind %d without endpoint", ev.Kind)
	}
	s := n.side(ev.Endpoint)
	switch ev.Kind {
	case van.EventAccepted:
		s.onAccepted()
		n.accepted = append(n.accepted, s)
	case van.EventCompletion:
		s.onCompletion(ev.Op, ev.Err)
	case van.EventMessage:
		s.onMessage(ev.Delivery)
	case van.EventLost:
		s.onLost(ev.Err)
	case van.EventDetached:
		s.onDetached()
	default:
		n.t.fail(1, "event of unknown kind %d", ev.Kind)
	}
}

// Place implements van.Placer for the van under test. It must not end the case
// from inside Poll, so a violation waits until Poll has returned.
func (n *node) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) (_ [][]byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			n.t.keep(r)
			err = errors.New("vantest: the case has failed")
		}
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.side(ep).place(h, meta, dst)
}

// endpoints returns every endpoint of n.
func (n *node) endpoints() []*side {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.sides))
}

// close closes the van, twice.
func (n *node) close() {
	for _, s := range n.endpoints() {
		s.closing()
	}
	n.closed.Store(true)
	for range 2 {
		if err := n.van.Close(); err != nil {
			n.t.fail(6, "Close: %v", err)
		}
	}
}

func (n *node) describe(i int) (text string) {
	for _, s := range n.endpoints() {
		c := s.count()
		text += fmt.Sprintf("; van %d, peer %s: %d accepted, %d completed, %d delivered, %d held, lost %v",
			i, s.ep.Peer(), c.sent, c.completed, c.delivered, c.held, c.lost)
	}
	return text
}

// all reports whether something is so for each of the list.
func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// noPlacer refuses everything.
type noPlacer struct{}

func (noPlacer) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return dst, fmt.Errorf("no payload expected")
}
