package vantest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan"
)

var clause10 = Clause{Number: 10, Name: "methods_may_be_called_concurrently_as_stated", cases: []testCase{
	{name: "senders, pollers and everything else", run: everythingAtOnce},
	{name: "dials and listens", run: manyDials},
}}

// everythingAtOnce has a sender for each endpoint, a poller for each van, and
// the methods that may always be called beside them. The race detector judges.
func everythingAtOnce(p *probe) {
	a, b := p.pair()
	addr := b.listen()
	const conns, messages = 3, 300
	var sides []*side
	for range conns {
		x, y := p.dial(a, b, addr)
		sides = append(sides, x, y)
	}
	var over atomic.Bool
	a.pump(over.Load)
	b.pump(over.Load)
	var senders sync.WaitGroup
	for _, s := range sides {
		senders.Add(1)
		p.spawn(func() {
			defer senders.Done()
			s.stream(messages)
		})
	}
	p.spawn(func() { p.meddle(a, sides) })
	senders.Wait()
	p.until("delivery and completion of everything sent", func() bool {
		for i := 0; i < len(sides); i += 2 {
			if !sides[i].idle() || !sides[i+1].idle() || sides[i].count().delivered < messages || sides[i+1].count().delivered < messages {
				return false
			}
		}
		return true
	})
	over.Store(true)
	a.wake()
	b.wake()
	p.join()
}

// stream sends n messages while somebody else polls.
func (s *side) stream(n int) {
	for i := 0; i < n && s.n.p.ctx.Err() == nil; {
		switch err := s.offer(shape{size: i * 37 % 9000, segments: 1 + i%3, meta: i % 60}); {
		case err == nil:
			i++
		case errors.Is(err, stepvan.ErrWouldBlock):
			s.await()
		default:
			s.n.p.fail(10, "Send: %v", err)
		}
	}
}

// meddle calls what may be called at any time.
func (p *probe) meddle(n *node, sides []*side) {
	for range 50 {
		n.van.Caps()
		n.van.FD()
		_, err := n.van.Listen(p.f.Listen)
		p.must(err, "Listen beside traffic")
		for _, s := range sides {
			s.ep.Peer()
		}
	}
}

func manyDials(p *probe) {
	a, b := p.pair()
	const n = 24
	var dialers sync.WaitGroup
	for range n {
		dialers.Add(1)
		p.spawn(func() {
			defer dialers.Done()
			addr := b.listen()
			ep, err := a.van.Dial(p.ctx, addr)
			p.must(err, "dial")
			a.adopt(ep).endangered()
		})
	}
	b.pump(func() bool { return len(b.accepts()) == n })
	a.pump(func() bool { return len(b.accepts()) == n })
	p.until("EventAccepted of every dial", func() bool { return len(b.accepts()) == n })
	a.wake()
	b.wake()
	dialers.Wait()
	p.join()
}
