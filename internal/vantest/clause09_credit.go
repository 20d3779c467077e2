package vantest

import "sync"

var clause09 = Clause{Number: 9, Name: "a_delivery_owns_meta_and_credit_until_release", cases: []testCase{
	{name: "credits run out and come back", run: func(t *trial) {
		x, y := t.pair()
		z, _ := t.connect(x.n, y.n)
		x.exhaust(10)
		wantDelivered := func(n int) {
			got := y.count().delivered
			t.want(got == n, "%d deliveries with %d credits, %d can have arrived", got, t.f.Credits, n)
		}
		wantDelivered(t.f.Credits)
		z.exchange(t.mix(30, 10*kib)...) // another endpoint has its own
		y.deliver(t.mix(30, 10*kib)...)  // and so has the other direction
		y.release(1)
		t.until("one delivery for one released credit", func() bool { return y.count().delivered == t.f.Credits+1 })
		t.quiet()
		wantDelivered(t.f.Credits + 1)
		y.releaseAll()
		x.drain()
		for range 3 { // none was lost on the way
			x.deliver(t.mix(t.f.Credits, kib)...)
			x.exhaust(1)
			y.releaseAll()
			x.drain()
		}
	}},
	{name: "held deliveries stay as they are", run: func(t *trial) {
		x, y := t.pair()
		y.in.hold = true
		keep := max(1, t.f.Credits/2)
		releaseOldest := func() {
			if y.count().held > keep {
				y.release(1)
			}
		}
		for i := range 3 * t.f.Credits {
			x.send(shape{size: 50 + i, meta: x.n.fits(10 + i%200)})
			releaseOldest()
		}
		t.until("all deliveries", func() bool {
			releaseOldest()
			return y.received()
		})
		y.release(keep + 1)
	}},
	{name: "release from other goroutines", run: func(t *trial) {
		x, y := t.pair()
		y.in.hold = true
		todo := make(chan struct{}, 1)
		stop := sync.OnceFunc(func() { close(todo) })
		t.atEnd = append(t.atEnd, stop)
		for range 3 {
			t.spawn(func() {
				for range todo {
					if y.release(3) > 0 {
						t.ring()
					}
				}
			})
		}
		n := 4 * t.f.Credits
		t.until("deliveries while other goroutines release", func() bool {
			if x.count().sent < n {
				x.try(shape{size: 64, meta: 20})
			}
			notify(todo)
			return y.count().delivered == n && y.count().held == 0
		})
		stop()
	}},
	{name: "release after the end", run: func(t *trial) {
		x, y := t.pair()
		z, w := t.connect(x.n, y.n)
		y.in.hold, w.in.hold = true, true
		for range min(5, t.f.Credits) {
			x.send(shape{size: 1000, meta: 100})
			z.send(shape{size: 1000, meta: 100})
		}
		x.drain()
		z.drain()
		mayFail(y, z)
		w.close() // here
		x.close() // there
		t.until("EventLost of the closed peer", func() bool { return y.isLost() && z.isLost() })
		y.release(2)
		w.release(2)
		t.quiet()
		y.n.close()
		y.release(10)
		w.release(10)
	}},
}}
