package vantest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan/van"
)

// dialing is what the methods of Van promise without being a clause.
var dialing = Clause{Number: 0, Name: "dial_and_listen", cases: []testCase{
	{name: "waits for a listener", run: func(t *trial) {
		a, b := t.node(4), t.node(4)
		addr := t.unusedAddress()
		var ep van.Endpoint
		var err error
		var dialed atomic.Bool
		t.spawn(func() {
			ep, err = a.van.Dial(t.ctx, addr)
			dialed.Store(true)
		})
		bound, lerr := b.van.Listen(addr)
		t.must(lerr, "listen at an address that was used before")
		t.want(bound == addr, "Listen(%q) is bound to %q", addr, bound)
		t.until("a dial that waits for a listener", dialed.Load)
		t.must(err, "dial")
		x, y := a.adopt(ep), b.accept("the dial")
		t.introduce(x, y)
		x.deliver(shape{size: 100, meta: 10})
		y.deliver(shape{size: 100, meta: 10})
	}},
	{name: "gives up with its context", run: func(t *trial) {
		a := t.node(4)
		ctx, cancel := context.WithTimeout(t.ctx, 30*time.Millisecond)
		defer cancel()
		_, err := a.van.Dial(ctx, t.unusedAddress())
		t.wantErr(err, "Dial past its deadline", context.DeadlineExceeded)
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		_, err = a.van.Dial(ended, a.listen())
		t.wantErr(err, "Dial with a cancelled context", context.Canceled)
	}},
	{name: "refuses a bad address at once", run: func(t *trial) {
		a := t.node(4)
		var err error
		t.call("Dial of an address that cannot be parsed", func() { _, err = a.van.Dial(context.Background(), t.f.BadAddr) })
		t.want(err != nil, "Dial(%q) succeeded", t.f.BadAddr)
		_, err = a.van.Listen(t.f.BadAddr)
		t.want(err != nil, "Listen(%q) succeeded", t.f.BadAddr)
	}},
	{name: "needs no Poll", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		pause(a, b)
		addr := b.listen()
		for range 3 {
			_, err := a.van.Dial(t.ctx, addr)
			t.must(err, "dial while nobody polls")
		}
		resume(a, b)
		for range 3 {
			b.accept("a dial while nobody polls")
		}
		t.quiet()
		t.want(b.claim() == nil, "three dials, more than three EventAccepted")
	}},
	{name: "Caps stay the same", run: func(t *trial) {
		a := t.node(4)
		caps := a.van.Caps()
		t.want(caps.Name != "" && caps.MaxMeta >= 4*kib && caps.MaxPayload >= 64*kib && caps.MaxSegments >= 1, "Caps %+v are too small to be useful", caps)
		a.listen()
		t.want(a.van.Caps() == caps, "Caps changed from %+v to %+v", caps, a.van.Caps())
		a.close()
		t.want(a.van.Caps() == caps, "Caps changed by Close")
	}},
	{name: "User and Peer", run: func(t *trial) {
		x, y := t.pair()
		for _, s := range []*side{x, y} {
			t.want(s.ep.User() == nil, "User is %v at first", s.ep.User())
			for _, user := range []any{s, "another type"} {
				s.ep.SetUser(user)
				t.want(s.ep.User() == user, "User is not what SetUser set")
			}
			t.want(s.ep.Peer() != "", "Peer is empty")
		}
		x.exchange(t.mix(3, 100)...)
		for _, s := range []*side{x, y} {
			t.want(s.ep.User() == any("another type"), "traffic changed User to %v", s.ep.User())
		}
	}},
}}
