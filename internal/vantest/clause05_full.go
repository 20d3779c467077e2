package vantest

var clause05 = Clause{Number: 5, Name: "a_full_queue_is_a_return_value", cases: []testCase{
	{name: "without side effects", run: fullQueue},
	{name: "both ends full", run: bothEndsFull},
	{name: "a stopped process", run: stoppedProcess, need: needProcess},
}}

func fullQueue(p *probe) {
	for _, c := range []shape{{size: 64 * kib, segments: 2, meta: 50}, {meta: 40 * kib}} {
		a, b := p.pair()
		x, y := p.connect(a, b)
		c.meta = x.n.fits(c.meta)
		x.stuff(c)
		full := x.next
		y.rejected[full] = true
		before := x.count()
		p.want(before.outstanding > 0, "ErrWouldBlock, and no operation is outstanding")
		// A rejected message must leave no trace: the receiver expects each sequence
		// once, and the harness knows which operations were rejected.
		p.until("all that was accepted to arrive", func() bool { return x.idle() && y.count().delivered >= before.sent })
		p.quiet()
		p.want(y.count().delivered == before.sent, "%d messages were accepted, %d delivered", before.sent, y.count().delivered)
		delete(y.rejected, full)
		x.run(y, c, c)
	}
}

func bothEndsFull(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	c := shape{size: 128 * kib, meta: 16}
	x.stuff(c)
	y.stuff(c)
	for range 20 {
		x.send(c)
		y.send(c)
	}
	x.arrive(y)
	y.arrive(x)
}
