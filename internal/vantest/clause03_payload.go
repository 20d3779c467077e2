package vantest

var clause03 = Clause{Number: 3, Name: "payload_is_visible_before_its_message", cases: []testCase{
	{name: "every size", run: func(t *trial) {
		x, y := t.pair()
		for _, meta := range []int{0, 1, 200, 5000} {
			var list []shape
			for _, size := range t.f.sizes() {
				list = append(list, shape{size: size, meta: x.n.fits(meta)})
			}
			x.deliver(list...)
			y.deliver(list...)
		}
	}},
	{name: "gather and scatter", run: func(t *trial) {
		x, y := t.pair()
		most := x.caps.MaxSegments
		for _, size := range []int{1, 5, 129, 4097, 70001, 300007} {
			for _, parts := range []int{1, 2, 3, 17, 100} {
				y.in.parts = parts
				for _, segments := range []int{1, 2, 5, 33, most} {
					x.deliver(shape{size: size, segments: min(segments, most, 512), meta: x.n.fits(33)})
				}
			}
		}
	}},
	{name: "16 MiB", run: func(t *trial) {
		x, y := t.pair()
		y.in.parts = 3
		small := shape{size: 8, meta: 8}
		x.deliver(small, shape{size: 16 * mib, segments: min(3, x.caps.MaxSegments), meta: 8}, small)
	}},
	{name: "while both directions are busy", run: func(t *trial) {
		x, y := t.pair()
		x.in.parts, y.in.parts = 2, 4
		x.exchange(times(40, shape{size: 300 * kib, meta: 10}, shape{size: 20, meta: 10})...)
	}},
	{name: "ping-pong between processes", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("echo")
		pingPong := func(c shape) {
			s.send(c)
			t.until("an echo", peer.echoed)
		}
		for range 2 {
			for _, size := range append(t.f.sizes(), 3*mib+1, 16*mib) {
				pingPong(shape{size: size, meta: size % 500, segments: 1 + size%3})
			}
		}
		for range 2000 {
			pingPong(shape{size: 8, meta: 8})
		}
		peer.leave()
	}},
	{name: "a stream between processes", need: needProcess, run: func(t *trial) {
		s, peer := t.startPeer("echo")
		s.send(t.mix(5000, 64*kib)...)
		t.until("all echoes", peer.echoed)
		peer.leave()
	}},
}}
