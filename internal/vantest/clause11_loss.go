package vantest

import (
	"errors"

	"github.com/stepvan/stepvan"
)

var clause11 = Clause{Number: 11, Name: "the_loss_of_a_peer_is_one_event", cases: []testCase{
	{name: "after everything deliverable", run: lossAfterDeliveries},
	{name: "after the completions", run: lossAfterCompletions},
	{name: "for every endpoint of a closed van", run: lossForEveryEndpoint},
	{name: "not on the side that closes", run: noLossWhereClosed},
	{name: "behind messages without credit", run: lossBehindCredit},
	{name: "both close", run: bothClose},
	{name: "detached when no view is left", run: detachedAfterViews, need: needOneSided},
	{name: "detached in the end", run: detachedAlways, need: needOneSided},
	{name: "connections that are lost at random", run: lossy, need: needLossy},
	{name: "a killed process that floods", run: killedFlooder, need: needProcess},
	{name: "a killed process that does not read", run: killedSleeper, need: needProcess},
	{name: "a process that leaves", run: leaver, need: needProcess},
}}

func lossAfterDeliveries(p *probe) {
	for _, viaVan := range []bool{false, true} {
		a, b := p.pair()
		x, y := p.connect(a, b)
		x.run(y, p.mix(50, 10*kib)...)
		b.detached.Store(true)
		for range 10 {
			x.try(shape{meta: 9})
		}
		for range 20 {
			x.try(shape{size: p.rng.IntN(3000), meta: 9})
			x.try(shape{meta: 9})
		}
		p.quiet()
		y.endangered()
		if viaVan {
			a.close()
		} else {
			x.close()
		}
		p.until("completions after Close", x.idle)
		b.detached.Store(false)
		p.until("EventLost", func() bool { return y.count().lost })
		p.want(errors.Is(y.count().reason, stepvan.ErrPeerLost), "EventLost says %v, not stepvan.ErrPeerLost", y.count().reason)
		p.want(y.count().delivered >= x.count().succeeded, "%d messages completed without error before Close, %d were delivered before EventLost", x.count().succeeded, y.count().delivered)
		err := y.offer(shape{size: 1})
		p.want(errors.Is(err, stepvan.ErrPeerLost) || errors.Is(err, stepvan.ErrClosed), "Send after EventLost returned %v", err)
		p.quiet()
		y.close()
		p.quiet()
	}
}

func lossAfterCompletions(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	a.detached.Store(true)
	for range 40 {
		y.try(shape{size: 200 * kib, meta: 7})
		y.try(shape{meta: 7})
	}
	y.endangered()
	x.close()
	p.until("EventLost, after the completions", func() bool { return y.count().lost }) // the books check the order
	a.detached.Store(false)
	p.quiet()
}

func lossForEveryEndpoint(p *probe) {
	a, b := p.pair()
	c := p.node(16)
	addr := b.listen()
	z, w := p.dial(c, b, addr)
	var ends []*side
	for range 10 {
		x, y := p.dial(a, b, addr)
		x.run(y, shape{size: 10})
		y.endangered()
		ends = append(ends, y)
	}
	a.close()
	p.until("EventLost of every endpoint", func() bool {
		for _, y := range ends {
			if !y.count().lost {
				return false
			}
		}
		return true
	})
	duplex(z, w, p.mix(10, kib)) // the others live on
	p.quiet()
}

func noLossWhereClosed(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	x.run(y, shape{size: 10})
	y.send(shape{size: 10})
	y.endangered()
	x.close()
	p.until("EventLost at the peer", func() bool { return y.count().lost })
	p.quiet()
	p.want(!x.count().lost, "EventLost on the side that closed")
}

func lossBehindCredit(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	exhaust(p, x, y, 5)
	x.endangered()
	y.endangered()
	before := x.count().succeeded
	x.close()
	p.until("completions after Close", x.idle)
	p.quiet()
	if before > p.f.Credits {
		p.want(!y.count().lost, "EventLost came before messages that wait for credit")
	}
	y.hold = false
	y.release(p.f.Credits)
	p.until("EventLost", func() bool { return y.count().lost })
	p.want(y.count().delivered >= x.count().succeeded, "%d messages completed without error, %d were delivered", x.count().succeeded, y.count().delivered)
}

func bothClose(p *probe) {
	for range 20 {
		a, b := p.pair()
		x, y := p.connect(a, b)
		for range 5 {
			x.try(shape{size: 5000})
			y.try(shape{size: 5000})
		}
		x.endangered()
		y.endangered()
		x.close()
		y.close()
		p.until("completions after Close on both sides", func() bool { return x.idle() && y.idle() })
		p.quiet()
		a.close()
		b.close()
	}
}

// lossy sends over connections that are lost by themselves. What arrives is a
// prefix of what was sent. The loss is one event on each side. Every operation completes.
func lossy(p *probe) {
	a, b := p.pair()
	addr := b.listen()
	for losses, sent := 0, 0; losses < 5; losses++ {
		x, y := p.dial(a, b, addr)
		x.endangered()
		y.endangered()
		var ends error
		p.until("the loss of a lossy connection", func() bool {
			for ends == nil {
				ends = x.offer(shape{size: p.rng.IntN(2000), segments: 2, meta: 20})
				sent++
			}
			if errors.Is(ends, stepvan.ErrWouldBlock) {
				ends = nil
			}
			return x.count().lost && y.count().lost
		})
		p.want(y.count().delivered <= x.count().sent, "more was delivered than sent")
		p.want(x.idle() && y.idle(), "the loss came before completions")
		if sent > 200_000 {
			p.fail(11, "Caps.Lossy, but after %d messages only %d losses", sent, losses)
		}
	}
}
