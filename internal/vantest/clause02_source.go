package vantest

var clause02 = Clause{Number: 2, Name: "source_belongs_to_the_van_until_completion", cases: []testCase{
	{name: "large payload to a slow receiver", run: sourceOfLarge},
	{name: "small payload to a slow receiver", run: sourceOfSmall},
	{name: "the caller's after Send, with large memory to spare", run: spareOfLarge},
	{name: "the caller's after Send, with small memory to spare", run: spareOfSmall},
	{name: "the caller's after Send, behind a long head", run: spareBehindHead},
	{name: "the caller's after Send, under way in both directions", run: spareBothWays},
}}

// The case polls the sender as often as it can before it polls the receiver. It overwrites every
// source the moment that its message completes. What completes too early arrives as junk.
func sourceOfLarge(p *probe) { sourceHeld(p, 12, shape{size: mib + 1, segments: 5, meta: 100}) }

func sourceOfSmall(p *probe) { sourceHeld(p, 400, shape{size: 99, segments: 2, meta: 20}) }

func sourceHeld(p *probe, n int, c shape) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for range n {
		for range 20 {
			a.poll(true)
		}
		x.send(c)
	}
	x.arrive(y)
}

// The cases with a Spare overwrite the source the moment that Send returns.
func spareOfLarge(p *probe) {
	sourceHeld(p, 12, shape{size: mib + 1, segments: 5, meta: 100, spare: true})
}

func spareOfSmall(p *probe) {
	sourceHeld(p, 400, shape{size: 99, segments: 2, meta: 20, spare: true})
}

func spareBehindHead(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for range 4 {
		x.send(shape{size: 700 * kib, segments: 3, meta: x.n.fits(100 * kib), spare: true})
		x.send(shape{size: 70 * kib, segments: 3, meta: 10})
	}
	x.arrive(y)
}

func spareBothWays(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	shapes := p.mix(200, 2*mib)
	for i := range shapes {
		shapes[i].spare = i%3 != 0
	}
	duplex(x, y, shapes)
}
