package vantest

import (
	"context"
	"errors"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var clause06 = Clause{Number: 6, Name: "close_is_idempotent_and_unblocks", cases: []testCase{
	{name: "everything is refused afterwards", run: refusedAfterClose},
	{name: "Dial returns", run: closeUnblocksDial},
	{name: "endpoints from many goroutines", run: closeEndpointFromEverywhere},
	{name: "vans from many goroutines", run: closeVanFromEverywhere},
	{name: "a van that was never used", run: func(p *probe) { p.node(1).close() }},
}}

func refusedAfterClose(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	z, _ := p.connect(a, b)
	x.run(y, shape{size: 100})
	z.endangered()
	for _, s := range b.sides {
		s.endangered()
	}
	x.close()
	err := x.offer(shape{size: 1})
	p.want(errors.Is(err, stepvan.ErrClosed), "Send after Endpoint.Close returned %v, not stepvan.ErrClosed", err)
	addr := a.listen()
	a.close()
	err = z.offer(shape{size: 1})
	p.want(errors.Is(err, stepvan.ErrClosed), "Send after Van.Close returned %v, not stepvan.ErrClosed", err)
	p.call("Listen after Van.Close to return", func() { _, err = a.van.Listen(p.f.Listen) })
	p.want(errors.Is(err, stepvan.ErrClosed), "Listen after Van.Close returned %v, not stepvan.ErrClosed", err)
	p.call("Dial after Van.Close to return", func() { _, err = a.van.Dial(context.Background(), addr) })
	p.want(errors.Is(err, stepvan.ErrClosed), "Dial after Van.Close returned %v, not stepvan.ErrClosed", err)
	for range 3 {
		p.must(x.ep.Close(), "Endpoint.Close after Van.Close")
	}
	p.quiet()
}

// unusedAddress returns an address at which nobody listens.
func (p *probe) unusedAddress() string {
	v, err := p.f.New(noPlacer{}, func() {})
	p.must(err, "make a van")
	addr, err := v.Listen(p.f.Listen)
	p.must(err, "listen")
	p.must(v.Close(), "close the van that listened")
	return addr
}

func closeUnblocksDial(p *probe) {
	a := p.node(4)
	addr := p.unusedAddress()
	var started, returned sync.WaitGroup
	for range 4 {
		started.Add(1)
		returned.Add(1)
		p.spawn(func() {
			defer returned.Done()
			started.Done()
			_, err := a.van.Dial(context.Background(), addr)
			p.want(errors.Is(err, stepvan.ErrClosed), "Dial returned %v when the van was closed, not stepvan.ErrClosed", err)
		})
	}
	started.Wait()
	a.close()
	p.join()
}

// storm keeps one connection busy from two goroutines for as long as it lasts.
func storm(p *probe) (a, b *node, x, y *side) {
	a, b = p.pair()
	x, y = p.connect(a, b)
	x.endangered()
	y.endangered()
	for _, s := range []*side{x, y} {
		s.n.detached.Store(true)
		s.allow.stormy = true
		p.spawn(func() {
			for i := 0; p.ctx.Err() == nil; i++ {
				err := s.offer(shape{size: i % 5000, meta: i % 50})
				switch {
				case errors.Is(err, stepvan.ErrWouldBlock):
					s.await()
				case err != nil:
					p.want(errors.Is(err, stepvan.ErrClosed) || errors.Is(err, stepvan.ErrPeerLost), "Send during Close returned %v", err)
					return
				}
			}
		})
	}
	return a, b, x, y
}

func closeEndpointFromEverywhere(p *probe) {
	a, b, x, y := storm(p)
	closeEverywhere(p, a, b, []van.Endpoint{x.ep, y.ep})
	p.until("completions of everything accepted before Close", func() bool { return x.idle() && y.idle() })
	p.quiet()
}

func closeVanFromEverywhere(p *probe) {
	a, b, x, y := storm(p)
	closeEverywhere(p, a, b, []van.Van{a.van, b.van})
	p.until("completions of everything accepted before Close", func() bool { return x.idle() && y.idle() })
	p.quiet()
}

// closeEverywhere closes the things from several goroutines after some traffic.
func closeEverywhere[C interface{ Close() error }](p *probe, a, b *node, things []C) {
	var closing sync.WaitGroup
	begin := make(chan struct{})
	for _, c := range things {
		for range 4 {
			closing.Add(1)
			p.spawn(func() {
				defer closing.Done()
				<-begin
				p.must(c.Close(), "Close")
			})
		}
	}
	for range 200 {
		a.poll(true)
		b.poll(true)
	}
	close(begin)
	closing.Wait()
	a.detached.Store(false)
	b.detached.Store(false)
	p.join()
}
