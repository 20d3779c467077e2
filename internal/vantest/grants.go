package vantest

import (
	"errors"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// granted is fenced memory that the peer of a side may write.
type granted struct {
	s     *side
	arena []byte
	mem   []byte
	van.Grant
}

const grantFence = 64

// grant grants memory and has the peer know of it, by a message.
func (s *side) grant(size int, generation uint32, rights van.Rights) *granted {
	g := s.grantUntold(size, generation, rights)
	if s.peer != nil {
		s.run(s.peer, shape{})
	}
	return g
}

// grantUntold leaves it to the van when the peer learns of the grant: before the next message.
func (s *side) grantUntold(size int, generation uint32, rights van.Rights) *granted {
	g := &granted{s: s, arena: s.n.p.memory(size + 2*grantFence)}
	paint(g.arena, canary)
	g.mem = g.arena[grantFence : grantFence+size : grantFence+size]
	paint(g.mem, poison)
	var err error
	g.Grant, err = s.granter().Grant(g.mem, generation, rights)
	s.n.p.must(err, "Grant")
	s.n.p.want(g.Generation == generation && g.Rights == rights && g.Length == int64(size), "Grant returned %+v for %d bytes of generation %d", g.Grant, size, generation)
	s.allow.granting = true
	return g
}

// memory is what the van under test can grant.
func (p *probe) memory(n int) []byte {
	if p.f.Memory == nil {
		return make([]byte, n)
	}
	mem, err := p.f.Memory(n)
	p.must(err, "Factory.Memory")
	return mem
}

// at is the target that begins at an offset.
func (g *granted) at(offset int) van.Target {
	return van.Target{Grant: g.ID, Generation: g.Generation, Offset: int64(offset)}
}

// untouched fails unless all of the memory is as it was.
func (g *granted) untouched(what string) {
	for i, c := range g.arena {
		want := byte(canary)
		if i >= grantFence && i < grantFence+len(g.mem) {
			want = poison
		}
		if c != want {
			g.s.n.p.fail(8, "%s wrote at byte %d of the grant", what, i-grantFence)
		}
	}
}

func (g *granted) fences(p *probe) {
	for i := range grantFence {
		if g.arena[i] != canary || g.arena[len(g.arena)-1-i] != canary {
			p.fail(8, "a write left its grant")
		}
	}
}

// withdraw withdraws the grant and waits for the completion.
func (g *granted) withdraw() {
	p := g.s.n.p
	g.s.expectOp(func(id van.OpID) error { return g.s.granter().Withdraw(g.ID, id) }, "Withdraw")
	p.until("completion of Withdraw", g.s.idle)
}

// expectOp starts an operation other than a Send, and keeps books on its completion.
func (s *side) expectOp(start func(van.OpID) error, what string) {
	n := s.n
	n.mu.Lock()
	n.ops++
	id := n.ops
	s.issued[id] = &op{}
	n.mu.Unlock()
	n.p.must(start(id), what)
}

func grantsAreWritten(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	g := y.grant(300*kib, 7, van.RightWrite|van.RightRead)
	at := 0
	for i, size := range []int{1, 8, 4097, 64 * kib, 200001} {
		y.peek = func(a *arrival) {
			if d := payloadOf(y.in, a.sequence).differs(g.mem[at : at+size]); d >= 0 {
				p.fail(3, "the grant of message %d differs at byte %d of %d when it is delivered", a.sequence, d, size)
			}
		}
		x.run(y, shape{size: size, meta: i, target: []van.Target{g.at(at)}})
		y.peek = nil
		at += size
		x.run(y, shape{size: size, meta: i}) // the Placer's turn in between
	}
	g.fences(p)
	segments := y.grant(200, 8, van.RightWrite)
	y.peek = func(a *arrival) {
		if d := payloadOf(y.in, a.sequence).differs(segments.mem[150:], segments.mem[:50]); d >= 0 {
			p.fail(8, "segments went to the wrong targets: byte %d", d)
		}
	}
	c := shape{size: 100, target: []van.Target{segments.at(150), segments.at(0)}, halves: true}
	x.run(y, c)
	y.peek = nil
	segments.withdraw()
	g.withdraw()
}

func grantsRefuse(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	z, w := p.connect(a, b)
	good := y.grant(100, 3, van.RightWrite)
	foreign := w.grant(100, 3, van.RightWrite) // for another peer
	readOnly := y.grant(100, 3, van.RightRead)
	withdrawn := y.grant(100, 3, van.RightWrite)
	withdrawn.withdraw()
	old, beyond, short, negative, wraps := good.at(0), good.at(101), good.at(51), good.at(-1), good.at(0)
	old.Generation--
	wraps.Offset = 1<<63 - 10
	unknown := good.at(0)
	unknown.Grant ^= 1 << 40
	for name, c := range map[string]struct {
		t    van.Target
		kind error
	}{
		"a withdrawn grant":        {withdrawn.at(0), stepvan.ErrStale},
		"an older generation":      {old, stepvan.ErrStale},
		"an unknown grant":         {unknown, nil},
		"another peer's grant":     {foreign.at(0), nil},
		"a read-only grant":        {readOnly.at(0), nil},
		"an offset behind the end": {beyond, nil},
		"a length behind the end":  {short, nil},
		"a negative offset":        {negative, nil},
		"an offset that wraps":     {wraps, nil},
	} {
		x.targetFails(name, c.t, c.kind)
		for _, g := range []*granted{good, foreign, readOnly, withdrawn} {
			g.untouched("a write through " + name)
		}
	}
	x.run(y, shape{size: 10}, shape{size: 100, target: []van.Target{good.at(0)}})
	z.run(w, shape{size: 10})
	err := y.granter().Withdraw(withdrawn.ID, 1<<40)
	p.want(errors.Is(err, stepvan.ErrStale), "a second Withdraw returned %v, not stepvan.ErrStale", err)
	err = w.granter().Withdraw(good.ID, 1<<40)
	p.want(err != nil, "Withdraw of another endpoint's grant succeeded")
	p.quiet()
}

// targetFails sends 50 bytes to a target that must not work. Neither the message
// nor a byte of it may arrive, and the connection must continue to work.
func (s *side) targetFails(name string, t van.Target, kind error) {
	p := s.n.p
	s.endangered()
	before := s.count()
	err := s.offer(shape{size: 50, target: []van.Target{t}})
	if err == nil {
		p.until("completion of a write through "+name, s.idle)
		after := s.count()
		p.want(after.succeeded == before.succeeded, "a write through %s succeeded", name)
		s.next-- // it does not arrive
		s.sent--
		err = s.lastErr
	}
	p.want(kind == nil || errors.Is(err, kind), "a write through %s failed with %v, not %v", name, err, kind)
}

// withdrawUnderFire withdraws a grant that the peer writes to all the time. From
// the completion of the withdrawal on, not a byte changes.
func withdrawUnderFire(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	g := y.grant(32*kib, 1, van.RightWrite)
	y.allow.anything = true
	x.endangered()
	var stop atomic.Bool
	var rejected atomic.Int64
	a.pump(stop.Load)
	p.spawn(func() {
		for !stop.Load() && p.ctx.Err() == nil && rejected.Load() < 100 {
			switch err := x.offer(shape{size: 32 * kib, target: []van.Target{g.at(0)}}); {
			case errors.Is(err, stepvan.ErrWouldBlock):
				x.await()
			case errors.Is(err, stepvan.ErrStale):
				rejected.Add(1)
				p.ring()
			}
		}
	})
	p.until("writes through the grant", func() bool { return y.count().delivered >= 20 })
	g.withdraw()
	failures := func() int { return x.count().completed - x.count().succeeded + int(rejected.Load()) }
	failed := failures()
	paint(g.mem, poison)
	p.until("writes after the withdrawal", func() bool { return rejected.Load() == 100 || failures() > failed+20 })
	stop.Store(true)
	a.wake()
	p.join()
	p.until("the last completions", x.idle)
	g.untouched("a write through a withdrawn grant")
}

func targetsRefused(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	if a.van.Caps().OneSided {
		err := x.offer(shape{size: 10, target: make([]van.Target, 2)})
		p.want(errors.Is(err, stepvan.ErrInvalid), "two targets for one segment: Send returned %v, not stepvan.ErrInvalid", err)
	} else {
		err := x.offer(shape{size: 10, target: make([]van.Target, 1)})
		p.want(errors.Is(err, stepvan.ErrInvalid) || errors.Is(err, stepvan.ErrNotSupported), "a target on a two-sided van: Send returned %v", err)
	}
	x.run(y, shape{size: 10})
}
