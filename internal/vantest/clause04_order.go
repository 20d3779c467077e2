package vantest

var clause04 = Clause{Number: 4, Name: "order_within_an_endpoint", cases: []testCase{
	{name: "thousands of messages", run: func(t *trial) {
		x, _ := t.pair()
		x.exchange(t.mix(4000, 2*kib)...)
	}},
	{name: "large between small", run: func(t *trial) {
		x, _ := t.pair()
		for range 20 {
			x.send(shape{size: 2 * mib, meta: 10})
			x.send(times(10, shape{size: 1, meta: 1}, shape{})...)
		}
		x.drain()
	}},
	{name: "several connections", run: func(t *trial) {
		a, b := t.node(16), t.node(16)
		addr := b.listen()
		const n = 8
		var outs, ins [n]*side
		for i := range n {
			outs[i], ins[i] = t.dial(a, b, addr)
		}
		for _, c := range t.mix(600, 64*kib) {
			i := t.rng.IntN(n)
			outs[i].send(c)
			ins[(i+1)%n].send(c)
		}
		for i := range n {
			outs[i].drain()
			ins[i].drain()
		}
	}},
}}
