package vantest

import "sync/atomic"

var clause10 = Clause{Number: 10, Name: "methods_may_be_called_concurrently_as_stated", cases: []testCase{
	// Each endpoint has a sender, each van has a poller, and the methods that may always be called are called beside
	// them. The race detector judges.
	{name: "senders, pollers and everything else", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		addr := b.listen()
		const conns, messages = 3, 300
		var sides []*side
		for range conns {
			x, y := t.dial(a, b, addr)
			sides = append(sides, x, y)
		}
		var over atomic.Bool
		a.pump(over.Load)
		b.pump(over.Load)
		for _, s := range sides {
			t.spawn(func() {
				for i := range messages {
					t.must(s.offerWaiting(shape{size: i * 37 % 9000, segments: 1 + i%3, meta: i % 60}), "Send")
				}
			})
		}
		t.spawn(func() {
			for range 50 {
				a.van.Caps()
				a.van.FD()
				_, err := a.van.Listen(t.f.Listen)
				t.must(err, "Listen beside traffic")
				for _, s := range sides {
					s.ep.Peer()
				}
			}
		})
		t.until("delivery and completion of everything sent", func() bool {
			return all(sides, func(s *side) bool { return s.idle() && s.count().delivered >= messages })
		})
		over.Store(true)
		a.wake()
		b.wake()
		t.join()
	}},
	{name: "dials and listens", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		const n = 24
		for range n {
			t.spawn(func() {
				addr := b.listen()
				ep, err := a.van.Dial(t.ctx, addr)
				t.must(err, "dial")
				mayFail(a.adopt(ep))
			})
		}
		all := func() bool { return len(b.unclaimed()) == n }
		b.pump(all)
		a.pump(all)
		t.until("EventAccepted of every dial", all)
		a.wake()
		b.wake()
		t.join()
	}},
}}
