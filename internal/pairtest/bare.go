package pairtest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Bare is the least van that can carry messages between two transports of a process. It has one ring of copied messages
// per direction, without locks or system calls. It is for benchmarks of what lies above a van, and does only what those
// need. It has no losses, no limits and no order of closing, and deliveries must be released in order.
func Bare() Van {
	net := &bareNet{at: map[string]*bareVan{}}
	return Van{
		Name: "bare",
		Maker: func(string, *tensor.Allocator) link.VanMaker {
			return func(p van.Placer, wake func()) (van.Van, error) {
				return &bareVan{net: net, placer: p, wake: wake}, nil
			}
		},
		Addr: func(instance string) string { return "bare://" + strings.ReplaceAll(instance, " ", "-") },
	}
}

type bareNet struct {
	mu sync.Mutex
	at map[string]*bareVan
}

type bareVan struct {
	net    *bareNet
	placer van.Placer
	wake   func()
	mu     sync.Mutex
	ends   atomic.Pointer[[]*bareEnd]
}

func (v *bareVan) Caps() van.Caps {
	return van.Caps{Name: "bare", Sound: true, InMessage: bareInMessage, MaxMeta: 1 << 16, MaxPayload: 1 << 16, MaxSegments: 64}
}

func (v *bareVan) Listen(addr string) (string, error) {
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	v.net.at[addr] = v
	return addr, nil
}

func (v *bareVan) Dial(_ context.Context, addr string) (van.Endpoint, error) {
	v.net.mu.Lock()
	peer := v.net.at[addr]
	v.net.mu.Unlock()
	if peer == nil {
		return nil, errs.Invalid("bare: nothing listens at %s", addr)
	}
	ours, theirs := &bareEnd{van: v, name: addr}, &bareEnd{van: peer, name: "dialler", unreported: true}
	ours.peer, theirs.peer = theirs, ours
	v.add(ours)
	peer.add(theirs)
	return ours, nil
}

func (v *bareVan) add(e *bareEnd) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := append([]*bareEnd{e}, v.list()...)
	v.ends.Store(&list)
	v.wakePoller()
}

func (v *bareVan) wakePoller() { v.wake() }

func (v *bareVan) Poll(events []van.Event, _ bool) (n int) {
	for _, e := range v.list() {
		n += e.poll(events[n:])
	}
	return n
}

// Arm reports that nothing waits. The van calls wake for every message, armed or not: during a poll that costs an
// atomic load.
func (v *bareVan) Arm() bool {
	for _, e := range v.list() {
		if e.unreported || e.seen != e.peer.sent.Load() {
			return false
		}
	}
	return true
}

func (v *bareVan) list() []*bareEnd {
	if p := v.ends.Load(); p != nil {
		return *p
	}
	return nil
}

func (v *bareVan) FD() int      { return -1 }
func (v *bareVan) Close() error { return nil }

const (
	bareSlots     = 64
	bareInMessage = 1 << 10
)

// bareEnd is one endpoint. Its slots hold the messages that it sends.
type bareEnd struct {
	van   *bareVan
	peer  *bareEnd
	name  string
	user  atomic.Value
	slots [bareSlots]bareSlot
	sent  atomic.Uint64 // by Send
	freed atomic.Uint64 // by the peer's releases

	// Only the poller uses these.
	unreported bool           // as accepted
	seen       uint64         // messages of the peer that were reported
	dst        [1 << 6][]byte // scratch
}

type bareSlot struct {
	head     []byte
	payload  []byte
	sender   *bareEnd
	delivery van.Delivery
}

func (e *bareEnd) SetUser(u any) { e.user.Store(u) }
func (e *bareEnd) User() any     { return e.user.Load() }
func (e *bareEnd) Peer() string  { return e.name }
func (e *bareEnd) Close() error  { return nil }

func (e *bareEnd) Send(m *van.Message) error {
	at := e.sent.Load()
	if at-e.freed.Load() >= bareSlots {
		return stepvan.ErrWouldBlock
	}
	s := &e.slots[at%bareSlots]
	s.sender = e
	s.head = append(s.head[:0], m.Head...)
	s.payload = s.payload[:0]
	for _, p := range m.Payload {
		s.payload = append(s.payload, p...)
	}
	e.sent.Store(at + 1)
	m.Done = true
	e.peer.van.wakePoller()
	return nil
}

func (e *bareEnd) poll(events []van.Event) (n int) {
	if e.unreported && len(events) > 0 {
		e.unreported = false
		events[0] = van.Event{Kind: van.EventAccepted, Endpoint: e}
		return 1 // messages wait until SetUser
	}
	for sent := e.peer.sent.Load(); n < len(events) && e.seen != sent; n++ {
		s := &e.peer.slots[e.seen%bareSlots]
		e.seen++
		if err := e.receive(s); err != nil {
			events[n] = van.Event{Kind: van.EventLost, Endpoint: e, Err: err}
			continue
		}
		events[n] = van.Event{Kind: van.EventMessage, Endpoint: e, Delivery: &s.delivery}
	}
	return n
}

func (e *bareEnd) receive(s *bareSlot) error {
	d := &s.delivery
	d.Meta, d.Payload, d.Refused, d.Releaser = s.head[wire.HeaderSize:], nil, nil, s
	if err := d.Header.Decode(s.head, wire.DefaultLimits); err != nil {
		return err
	}
	if len(s.payload) == 0 {
		return nil
	}
	if len(s.payload) <= bareInMessage && d.Header.Total == d.Header.Payload {
		d.Payload = s.payload
		return nil
	}
	dst, err := e.van.placer.Place(e, &d.Header, d.Meta, e.dst[:0])
	if d.Refused = err; err != nil {
		return nil
	}
	rest := s.payload
	for _, p := range dst {
		rest = rest[copy(p, rest):]
	}
	return nil
}

// ReleaseDelivery implements van.Releaser.
func (s *bareSlot) ReleaseDelivery(*van.Delivery) { s.sender.freed.Add(1) }
