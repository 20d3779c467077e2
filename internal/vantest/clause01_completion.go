package vantest

var clause01 = Clause{Number: 1, Name: "one_completion_per_accepted_operation", cases: []testCase{
	{name: "exactly one each", run: func(t *trial) {
		x, y := t.pair()
		x.exchange(t.mix(300, 256*kib)...)
		t.quiet()
		for _, s := range []*side{x, y} {
			t.want(s.count().completed == 300, "300 operations have %d completions", s.count().completed)
		}
	}},
	{name: "none for rejected operations", run: func(t *trial) {
		x, _ := t.pair()
		for range 3 {
			x.refuses(shape{size: 10, meta: x.caps.MaxMeta + 1})
			x.deliver(shape{size: 10, meta: 10})
		}
		t.quiet()
	}},
	{name: "all after Close of the endpoint", run: func(t *trial) {
		completesAfter(t, "Endpoint.Close", (*side).close)
	}},
	{name: "all after Close of the van", run: func(t *trial) {
		completesAfter(t, "Van.Close", func(x *side) { x.n.close() })
	}},
	{name: "one event at a time", run: func(t *trial) {
		x, _ := t.connect(t.node(1), t.node(1))
		x.exchange(t.mix(100, 64*kib)...)
	}},
}}

// completesAfter closes the sender while the peer receives nothing.
func completesAfter(t *trial, what string, end func(*side)) {
	x, y := t.pair()
	pause(y.n)
	x.try(times(20, shape{size: 256 * kib, meta: 10}, shape{meta: 10})...)
	t.want(x.count().sent > 0, "no message was accepted by an empty queue")
	mayFail(x, y)
	end(x)
	t.until("completions after "+what+", while the peer does nothing", x.idle)
	t.quiet()
}
