package vantest

var clause09 = Clause{Number: 9, Name: "a_delivery_owns_meta_and_credit_until_release", cases: []testCase{
	{name: "credits run out and come back", run: creditsRunOut},
	{name: "held deliveries stay as they are", run: heldStay},
	{name: "release from other goroutines", run: releaseElsewhere},
	{name: "release after the end", run: releaseAfterEnd},
}}

// exhaust sends until all credits of y are out and at least extra messages wait behind them.
func exhaust(p *probe, x, y *side, extra int) {
	y.hold = true
	before := y.count().delivered
	p.until("as many deliveries as there are credits", func() bool {
		if c := x.count(); c.sent-before < p.f.Credits+extra {
			x.try(shape{size: 100, meta: 30})
		}
		return y.count().held == p.f.Credits && x.count().sent-before > p.f.Credits
	})
	for range extra {
		x.try(shape{size: 100, meta: 30})
	}
	p.quiet()
}

func creditsRunOut(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	z, w := p.connect(a, b)
	exhaust(p, x, y, 10)
	p.want(y.count().delivered == p.f.Credits, "%d deliveries with %d credits", y.count().delivered, p.f.Credits)
	duplex(z, w, p.mix(30, 10*kib)) // another endpoint has its own
	y.run(x, p.mix(30, 10*kib)...)  // and so has the other direction
	y.release(1)
	p.until("one delivery for one released credit", func() bool { return y.count().delivered == p.f.Credits+1 })
	p.quiet()
	p.want(y.count().delivered == p.f.Credits+1, "%d deliveries with %d credits and one released", y.count().delivered, p.f.Credits)
	y.hold = false
	y.release(p.f.Credits)
	x.arrive(y)
	for range 3 { // none was lost on the way
		x.run(y, p.mix(p.f.Credits, kib)...)
		exhaust(p, x, y, 1)
		y.hold = false
		y.release(p.f.Credits)
		x.arrive(y)
	}
}

func heldStay(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	y.hold = true
	keep := max(1, p.f.Credits/2)
	for i := range 3 * p.f.Credits {
		x.send(shape{size: 50 + i, meta: x.n.fits(10 + i%200)})
		if y.count().held > keep {
			y.release(1)
		}
	}
	p.until("all deliveries", func() bool {
		if y.count().held > keep {
			y.release(1)
		}
		return y.count().delivered == x.count().sent
	})
	y.release(keep + 1)
}

func releaseElsewhere(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	y.hold = true
	todo := make(chan struct{}, 1)
	for range 3 {
		p.spawn(func() {
			for range todo {
				if y.release(3) > 0 {
					p.ring()
				}
			}
		})
	}
	p.atEnd = append(p.atEnd, func() { close(todo) })
	feed := func() {
		select {
		case todo <- struct{}{}:
		default:
		}
	}
	n := 4 * p.f.Credits
	p.until("deliveries while other goroutines release", func() bool {
		if c := x.count(); c.sent < n {
			x.try(shape{size: 64, meta: 20})
		}
		feed()
		return y.count().delivered == n && y.count().held == 0
	})
	p.atEnd = nil
	close(todo)
}

func releaseAfterEnd(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	z, w := p.connect(a, b)
	y.hold, w.hold = true, true
	for range min(5, p.f.Credits) {
		x.send(shape{size: 1000, meta: 100})
		z.send(shape{size: 1000, meta: 100})
	}
	x.arrive(y)
	z.arrive(w)
	z.endangered()
	w.close() // here
	y.endangered()
	x.close() // there
	p.until("EventLost of the closed peer", func() bool { return y.count().lost && z.count().lost })
	y.release(2)
	w.release(2)
	p.quiet()
	b.close()
	y.release(10)
	w.release(10)
}
