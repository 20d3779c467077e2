package vantest

import (
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan/van"
)

// dialing is what the methods of Van promise without being a clause.
var dialing = Clause{Number: 0, Name: "dial_and_listen", cases: []testCase{
	{name: "waits for a listener", run: dialWaits},
	{name: "gives up with its context", run: dialGivesUp},
	{name: "refuses a bad address at once", run: dialBadAddress},
	{name: "needs no Poll", run: dialNeedsNoPoll},
	{name: "Caps stay the same", run: capsStay},
	{name: "User and Peer", run: userAndPeer},
}}

func dialWaits(p *probe) {
	a := p.node(4)
	addr := p.unusedAddress()
	var ep van.Endpoint
	var err error
	dialed := make(chan struct{})
	p.spawn(func() {
		defer close(dialed)
		ep, err = a.van.Dial(p.ctx, addr)
	})
	b := p.node(4)
	bound, lerr := b.van.Listen(addr)
	p.must(lerr, "listen at an address that was used before")
	p.want(bound == addr, "Listen(%q) is bound to %q", addr, bound)
	p.until("a dial that waits for a listener", func() bool {
		select {
		case <-dialed:
			return true
		default:
			return false
		}
	})
	p.must(err, "dial")
	x := a.adopt(ep)
	x.out, x.in = 1000, 1001
	var y *side
	p.until("EventAccepted", func() bool { y = b.claim(); return y != nil })
	y.out, y.in = x.in, x.out
	x.run(y, shape{size: 100, meta: 10})
	y.run(x, shape{size: 100, meta: 10})
}

func dialGivesUp(p *probe) {
	a := p.node(4)
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Millisecond)
	defer cancel()
	_, err := a.van.Dial(ctx, p.unusedAddress())
	p.want(errors.Is(err, context.DeadlineExceeded), "Dial past its deadline returned %v", err)
	gone, cancel := context.WithCancel(p.ctx)
	cancel()
	_, err = a.van.Dial(gone, a.listen())
	p.want(errors.Is(err, context.Canceled), "Dial with a cancelled context returned %v", err)
}

func dialBadAddress(p *probe) {
	a := p.node(4)
	var err error
	p.call("Dial of an address that cannot be parsed", func() { _, err = a.van.Dial(context.Background(), p.f.BadAddr) })
	p.want(err != nil, "Dial(%q) succeeded", p.f.BadAddr)
	_, err = a.van.Listen(p.f.BadAddr)
	p.want(err != nil, "Listen(%q) succeeded", p.f.BadAddr)
}

func dialNeedsNoPoll(p *probe) {
	a, b := p.pair()
	a.detached.Store(true)
	b.detached.Store(true)
	addr := b.listen()
	for range 3 {
		_, err := a.van.Dial(p.ctx, addr)
		p.must(err, "dial while nobody polls")
	}
	a.detached.Store(false)
	b.detached.Store(false)
	for range 3 {
		p.until("EventAccepted", func() bool { return b.claim() != nil })
	}
	p.quiet()
	p.want(b.claim() == nil, "three dials, more than three EventAccepted")
}

func capsStay(p *probe) {
	a := p.node(4)
	caps := a.van.Caps()
	p.want(caps.Name != "" && caps.MaxMeta >= 4*kib && caps.MaxPayload >= 64*kib && caps.MaxSegments >= 1, "Caps %+v are too small to be useful", caps)
	a.listen()
	p.want(a.van.Caps() == caps, "Caps changed from %+v to %+v", caps, a.van.Caps())
	a.close()
	p.want(a.van.Caps() == caps, "Caps changed by Close")
}

func userAndPeer(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for _, s := range []*side{x, y} {
		p.want(s.ep.User() == nil, "User is %v at first", s.ep.User())
		s.ep.SetUser(s)
		p.want(s.ep.User() == any(s), "User is not what SetUser set")
		s.ep.SetUser("another type")
		p.want(s.ep.User() == any("another type"), "User is not what SetUser set")
		p.want(s.ep.Peer() != "", "Peer is empty")
	}
	duplex(x, y, p.mix(3, 100))
	for _, s := range []*side{x, y} {
		p.want(s.ep.User() == any("another type"), "traffic changed User to %v", s.ep.User())
	}
}
