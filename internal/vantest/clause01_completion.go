package vantest

import (
	"errors"

	"github.com/stepvan/stepvan"
)

var clause01 = Clause{Number: 1, Name: "one_completion_per_accepted_operation", cases: []testCase{
	{name: "exactly one each", run: completesOnce},
	{name: "none for rejected operations", run: rejectedHasNone},
	{name: "all after Close of the endpoint", run: completesAfterEndpointClose},
	{name: "all after Close of the van", run: completesAfterVanClose},
	{name: "one event at a time", run: completesOneByOne},
}}

func completesOnce(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	duplex(x, y, p.mix(300, 256*kib))
	p.quiet()
	p.want(x.count().completed == 300 && y.count().completed == 300, "300 operations each way, %d and %d completions", x.count().completed, y.count().completed)
}

func rejectedHasNone(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for range 3 {
		err := x.offer(shape{size: 10, meta: a.van.Caps().MaxMeta + 1})
		p.want(errors.Is(err, stepvan.ErrInvalid), "Send with too much meta returned %v, not stepvan.ErrInvalid", err)
		x.run(y, shape{size: 10, meta: 10})
	}
	p.quiet()
}

// unreceived makes a connection with operations outstanding that the peer does not receive.
func unreceived(p *probe) (a *node, x *side) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	b.detached.Store(true)
	for range 20 {
		x.try(shape{size: 256 * kib, meta: 10})
		x.try(shape{meta: 10})
	}
	p.want(x.count().sent > 0, "no message was accepted by an empty queue")
	x.endangered()
	y.endangered()
	return a, x
}

func completesAfterEndpointClose(p *probe) {
	_, x := unreceived(p)
	x.close()
	p.until("completions after Endpoint.Close, while the peer does nothing", x.idle)
	p.quiet()
}

func completesAfterVanClose(p *probe) {
	a, x := unreceived(p)
	a.close()
	p.until("completions after Van.Close, while the peer does nothing", x.idle)
	p.quiet()
}

func completesOneByOne(p *probe) {
	a, b := p.node(1), p.node(1)
	x, y := p.connect(a, b)
	duplex(x, y, p.mix(100, 64*kib))
}
