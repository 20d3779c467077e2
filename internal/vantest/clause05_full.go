package vantest

import "syscall"

var clause05 = Clause{Number: 5, Name: "a_full_queue_is_a_return_value", cases: []testCase{
	{name: "without side effects", run: func(t *trial) {
		for _, c := range []shape{{size: 64 * kib, segments: 2, meta: 50}, {meta: 40 * kib}} {
			x, y := t.pair()
			c.meta = x.n.fits(c.meta)
			x.fill(c)
			before := x.count()
			t.want(before.outstanding > 0, "ErrWouldBlock, and no operation is outstanding")
			// A rejected message must leave no trace: the receiver expects each sequence
			// once, and the harness knows which operations were rejected.
			x.drain()
			t.quiet()
			t.want(y.count().delivered == before.sent, "%d messages were accepted, %d delivered", before.sent, y.count().delivered)
			x.deliver(c, c)
		}
	}},
	{name: "both ends full", run: func(t *trial) {
		x, y := t.pair()
		c := shape{size: 128 * kib, meta: 16}
		x.fill(c)
		y.fill(c)
		x.exchange(times(20, c)...)
	}},
	// The peer stops as in a debugger. The queue fills, nothing is lost, and everything arrives when the peer
	// continues.
	{name: "a stopped process", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("echo")
		s.send(shape{size: 10})
		t.until("a first echo", peer.echoed)
		peer.signal(syscall.SIGSTOP)
		s.fill(shape{size: 64 * kib, meta: 10})
		t.want(!s.isLost(), "a stopped peer was declared lost")
		peer.signal(syscall.SIGCONT)
		t.until("all echoes after the peer continues", peer.echoed)
		peer.leave()
	}},
}}
