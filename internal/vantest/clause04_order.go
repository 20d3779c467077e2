package vantest

var clause04 = Clause{Number: 4, Name: "order_within_an_endpoint", cases: []testCase{
	{name: "thousands of messages", run: thousands},
	{name: "large between small", run: largeBetweenSmall},
	{name: "several connections", run: severalConnections},
}}

func thousands(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	duplex(x, y, p.mix(4000, 2*kib))
}

func largeBetweenSmall(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for range 20 {
		x.send(shape{size: 2 * mib, meta: 10})
		for range 10 {
			x.send(shape{size: 1, meta: 1})
			x.send(shape{})
		}
	}
	x.arrive(y)
}

func severalConnections(p *probe) {
	a, b := p.pair()
	addr := b.listen()
	const n = 8
	var outs, ins [n]*side
	for i := range n {
		outs[i], ins[i] = p.dial(a, b, addr)
	}
	for _, c := range p.mix(600, 64*kib) {
		i := p.rng.IntN(n)
		outs[i].send(c)
		ins[(i+1)%n].send(c)
	}
	for i := range n {
		outs[i].arrive(ins[i])
		ins[i].arrive(outs[i])
	}
}
