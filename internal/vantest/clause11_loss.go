package vantest

import (
	"errors"

	"github.com/stepvan/stepvan"
)

var clause11 = Clause{Number: 11, Name: "the_loss_of_a_peer_is_one_event", cases: append([]testCase{
	{name: "after everything deliverable", run: func(t *trial) {
		for _, viaVan := range []bool{false, true} {
			x, y := t.pair()
			x.deliver(t.mix(50, 10*kib)...)
			pause(y.n)
			x.try(times(10, shape{meta: 9})...)
			for range 20 {
				x.try(shape{size: t.rng.IntN(3000), meta: 9}, shape{meta: 9})
			}
			t.quiet()
			mayFail(y)
			if viaVan {
				x.n.close()
			} else {
				x.close()
			}
			t.until("completions after Close", x.idle)
			resume(y.n)
			t.until("EventLost", y.isLost)
			t.wantErr(y.count().reason, "EventLost", stepvan.ErrPeerLost)
			x.wantSucceededDelivered()
			t.wantErr(y.offer(shape{size: 1}), "Send after EventLost", stepvan.ErrPeerLost, stepvan.ErrClosed)
			t.quiet()
			y.close()
			t.quiet()
		}
	}},
	{name: "after the completions", run: func(t *trial) {
		x, y := t.pair()
		pause(x.n)
		y.try(times(40, shape{size: 200 * kib, meta: 7}, shape{meta: 7})...)
		mayFail(y)
		x.close()
		t.until("EventLost, after the completions", y.isLost) // the books check the order
		resume(x.n)
		t.quiet()
	}},
	{name: "for every endpoint of a closed van", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		addr := b.listen()
		z, _ := t.dial(t.node(16), b, addr)
		var ends []*side
		for range 10 {
			x, y := t.dial(a, b, addr)
			x.deliver(shape{size: 10})
			ends = append(ends, y)
		}
		mayFail(ends...)
		a.close()
		t.until("EventLost of every endpoint", func() bool { return all(ends, (*side).isLost) })
		z.exchange(t.mix(10, kib)...) // the others live on
		t.quiet()
	}},
	{name: "not on the side that closes", run: func(t *trial) {
		x, y := t.pair()
		x.deliver(shape{size: 10})
		y.send(shape{size: 10})
		mayFail(y)
		x.close()
		t.until("EventLost at the peer", y.isLost)
		t.quiet()
		t.want(!x.isLost(), "EventLost on the side that closed")
	}},
	{name: "behind messages without credit", run: func(t *trial) {
		x, y := t.pair()
		x.exhaust(5)
		mayFail(x, y)
		before := x.count().succeeded
		x.close()
		t.until("completions after Close", x.idle)
		t.quiet()
		if before > t.f.Credits {
			t.want(!y.isLost(), "EventLost came before messages that wait for credit")
		}
		y.releaseAll()
		t.until("EventLost", y.isLost)
		x.wantSucceededDelivered()
	}},
	{name: "both close", run: func(t *trial) {
		for range 20 {
			x, y := t.pair()
			x.try(times(5, shape{size: 5000})...)
			y.try(times(5, shape{size: 5000})...)
			mayFail(x, y)
			x.close()
			y.close()
			t.until("completions after Close on both sides", func() bool { return x.idle() && y.idle() })
			t.quiet()
			x.n.close()
			y.n.close()
		}
	}},
	// What arrives is a prefix of what was sent. The loss is one event on each side. Every operation completes.
	{name: "connections that are lost at random", need: needLossy, run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		addr := b.listen()
		for losses, sent := 0, 0; losses < 5; losses++ {
			x, y := t.dial(a, b, addr)
			mayFail(x, y)
			var ended error
			t.until("the loss of a lossy connection", func() bool {
				for ended == nil {
					ended = x.offer(shape{size: t.rng.IntN(2000), segments: 2, meta: 20})
					sent++
				}
				if errors.Is(ended, stepvan.ErrWouldBlock) {
					ended = nil
				}
				return x.isLost() && y.isLost()
			})
			t.want(y.count().delivered <= x.count().sent, "more was delivered than sent")
			t.want(x.idle() && y.idle(), "the loss came before completions")
			t.want(sent <= 200_000, "Caps.Lossy, but after %d messages only %d losses", sent, losses)
		}
	}},
	{name: "a killed process that floods", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("flood")
		s.try(times(20, shape{size: 100 * kib, meta: 10})...)
		t.until("messages of a peer that floods", func() bool { return s.count().delivered > 300 })
		peer.kill()
	}},
	{name: "a killed process that does not read", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("stall")
		s.fill(shape{size: 256 * kib, meta: 10})
		peer.kill()
	}},
	{name: "a process that leaves", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("leave")
		mayFail(s)
		t.until("EventLost of a peer that leaves", s.isLost)
		got := s.count().delivered
		t.want(got == lastMessages, "the peer completed %d messages before it closed, %d arrived", lastMessages, got)
		t.must(peer.ended(), "the peer process says")
	}},
}, detachCases...)}

// wantSucceededDelivered fails the case unless all that completed without error has arrived.
func (s *side) wantSucceededDelivered() {
	sent, arrived := s.count().succeeded, s.peer.count().delivered
	s.t.want(arrived >= sent, "%d messages completed without error before Close, %d were delivered before EventLost", sent, arrived)
}
