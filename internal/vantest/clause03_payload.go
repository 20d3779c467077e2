package vantest

var clause03 = Clause{Number: 3, Name: "payload_is_visible_before_its_message", cases: []testCase{
	{name: "every size", run: everySize},
	{name: "gather and scatter", run: gatherScatter},
	{name: "16 MiB", run: sixteenMiB},
	{name: "while both directions are busy", run: busyBothWays},
}}

// sizes are the payloads at which transports change their ways.
func (p *probe) sizes() []int {
	list := []int{0, 1, 7, 8, 63, 64, 127, 128, 129, 1500, 4095, 4096, 4097, 16*kib - 1, 16 * kib, 16*kib + 1, 64*kib - 1, 64 * kib, 64*kib + 1, 200*kib + 13, mib}
	for _, b := range p.f.Boundaries {
		list = append(list, max(0, b-1), b, b+1)
	}
	return list
}

func everySize(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for _, meta := range []int{0, 1, 200, 5000} {
		var list []shape
		for _, size := range p.sizes() {
			list = append(list, shape{size: size, meta: x.n.fits(meta)})
		}
		x.run(y, list...)
		y.run(x, list...)
	}
}

func gatherScatter(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	most := a.van.Caps().MaxSegments
	for _, size := range []int{1, 5, 129, 4097, 70001, 300007} {
		for _, parts := range []int{1, 2, 3, 17, 100} {
			y.parts = parts
			for _, segments := range []int{1, 2, 5, 33, most} {
				x.run(y, shape{size: size, segments: min(segments, most, 512), meta: x.n.fits(33)})
			}
		}
	}
}

func sixteenMiB(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	y.parts = 3
	x.run(y, shape{size: 8, meta: 8}, shape{size: 16 * mib, segments: min(3, a.van.Caps().MaxSegments), meta: 8}, shape{size: 8, meta: 8})
}

func busyBothWays(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	x.parts, y.parts = 2, 4
	var list []shape
	for range 40 {
		list = append(list, shape{size: 300 * kib, meta: 10}, shape{size: 20, meta: 10})
	}
	duplex(x, y, list)
}
