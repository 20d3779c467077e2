package vantest

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const bothRights = van.RightRead | van.RightWrite

var grantCases = []testCase{
	{name: "grants", need: needOneSided, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(600*kib, 7, bothRights)
		at := 0
		for i, size := range []int{1, 8, 4097, 64 * kib, 200001} {
			for _, viewed := range viewedOrNot(x.caps) {
				y.in.peek = func(a *arrival) {
					if d := payloadOf(y.in.salt, a.sequence).differs(g.mem[at : at+size]); d >= 0 {
						t.fail(3, "the grant of message %d differs at byte %d of %d when it is delivered", a.sequence, d, size)
					}
					t.want(a.Written, "message %d was written into a grant, and is not said to be", a.sequence)
				}
				x.deliver(shape{size: size, meta: i, target: []van.Target{g.at(at)}, viewed: viewed})
				y.in.peek = nil
				at += size
				x.deliver(shape{size: size, meta: i}) // the Placer's turn in between
			}
		}
		g.fenced("a write through a grant")
		segments := y.grant(200, 8, van.RightWrite)
		y.in.peek = func(a *arrival) {
			if d := payloadOf(y.in.salt, a.sequence).differs(segments.mem[150:], segments.mem[:50]); d >= 0 {
				t.fail(8, "segments went to the wrong targets: byte %d", d)
			}
		}
		for _, viewed := range viewedOrNot(x.caps) {
			paint(poison, segments.mem)
			x.deliver(shape{size: 100, target: []van.Target{segments.at(150), segments.at(0)}, halves: true, viewed: viewed})
		}
		y.in.peek = nil
		segments.withdraw()
		g.withdraw()
	}},
	// A request is written into a grant of the side that accepted, and its answer into one of the side that dialled. An
	// answer that comes after the withdrawal touches nothing.
	{name: "grants of both sides", need: needOneSided, run: func(t *trial) {
		x, y := t.pair()
		there, back := y.grant(100*kib, 7, bothRights), x.grant(200*kib, 7, bothRights)
		written := func(s *side, g *granted, at, size int) {
			s.in.peek = func(a *arrival) {
				if d := payloadOf(s.in.salt, a.sequence).differs(g.mem[at : at+size]); d >= 0 {
					t.fail(3, "message %d, written into a grant of its receiver, differs at byte %d of %d", a.sequence, d, size)
				}
			}
			s.peer.deliver(shape{size: size, meta: 8, target: []van.Target{g.at(at)}})
			s.in.peek = nil
		}
		for _, size := range []int{1, 4097, 64 * kib, 100 * kib} {
			written(y, there, 0, size)
			written(x, back, 100*kib-1, size)
		}
		paint(poison, back.mem)
		back.withdraw()
		written(y, there, 100, 10)
		y.writeFails("a grant that the side that dialled has withdrawn", back.at(0), stepvan.ErrStale)
		y.writeFails("a grant of its own", there.at(0), nil)
		back.untouched("an answer after the withdrawal")
		there.fenced("a request")
		y.deliver(shape{size: 10})
		there.withdraw()
	}},
	{name: "foreign, stale and short grants", need: needOneSided, run: func(t *trial) {
		x, y := t.pair()
		z, w := t.connect(x.n, y.n)
		good, foreign, readOnly := y.grant(100, 3, van.RightWrite), w.grant(100, 3, van.RightWrite), y.grant(100, 3, van.RightRead)
		withdrawn := y.grant(100, 3, van.RightWrite)
		withdrawn.withdraw()
		for name, c := range map[string]struct {
			to   van.Target
			kind error
		}{
			"a withdrawn grant":        {withdrawn.at(0), stepvan.ErrStale},
			"an older generation":      {good.older(), stepvan.ErrStale},
			"an unknown grant":         {good.unknown(), nil},
			"another peer's grant":     {foreign.at(0), nil},
			"a read-only grant":        {readOnly.at(0), nil},
			"an offset behind the end": {good.at(101), nil},
			"a length behind the end":  {good.at(51), nil},
			"a negative offset":        {good.at(-1), nil},
			"an offset that wraps":     {good.at(math.MaxInt64 - 9), nil},
		} {
			x.writeFails(name, c.to, c.kind)
			for _, g := range []*granted{good, foreign, readOnly, withdrawn} {
				g.untouched("a write through " + name)
			}
		}
		x.deliver(shape{size: 10}, shape{size: 100, target: []van.Target{good.at(0)}})
		z.deliver(shape{size: 10})
		t.wantErr(y.granter.Withdraw(withdrawn.ID, 1<<40), "a second Withdraw", stepvan.ErrStale)
		err := w.granter.Withdraw(good.ID, 1<<40)
		t.want(err != nil, "Withdraw of another endpoint's grant succeeded")
		t.quiet()
	}},
	// The peer writes as soon as it has the first message after Grant.
	{name: "a peer that hears of a grant may write to it", need: needOneSided, run: func(t *trial) {
		x, y := t.pair()
		for i := range 20 {
			g := y.grantUntold(100, uint32(i), van.RightWrite)
			y.send(shape{meta: 8})
			t.until("the first message after Grant", y.peer.received)
			x.deliver(shape{size: 100, target: []van.Target{g.at(0)}})
			t.want(payloadOf(y.in.salt, uint64(i+1)).differs(g.mem) < 0, "a write to a fresh grant did not arrive")
			if i%2 == 0 {
				g.withdraw()
			}
		}
	}},
	{name: "small segments travel with the head", need: needOffload, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(100*kib, 1, van.RightWrite)
		most := int(y.caps.InMessage)
		targets := []van.Target{{}, g.at(0), {}}
		for _, cuts := range [][]int{{1, 100, 0}, {0, 100 * kib, 8}, {most / 2, 4097, most - most/2}, {most, 1, 0}, {0, 0, most}} {
			size := cuts[0] + cuts[1] + cuts[2]
			y.in.peek = func(a *arrival) {
				t.want(a.Written && len(a.Payload) == cuts[0]+cuts[2], "message %d has %d bytes that travelled with its head", a.sequence, len(a.Payload))
				if d := payloadOf(y.in.salt, a.sequence).differs(a.Payload[:cuts[0]], g.mem[:cuts[1]], a.Payload[cuts[0]:]); d >= 0 {
					t.fail(3, "message %d, some of which travelled with its head, differs at byte %d of %d", a.sequence, d, size)
				}
			}
			x.deliver(shape{size: size, cuts: cuts, target: targets})
			y.in.peek = nil
			x.deliver(shape{size: size})
		}
		g.fenced("a write beside segments that travelled with the head")
		x.refuses(shape{size: most + 2, cuts: []int{most, 1, 1}, target: targets})
		y.in.hold = true
		x.deliver(shape{size: 100, cuts: []int{50, 50}, target: []van.Target{{}, g.at(0)}})
		x.deliver(times(3, shape{size: 60, cuts: []int{60}, target: []van.Target{{}}})...)
		y.in.peek = nil
		want := payloadOf(y.in.salt, y.in.held[0].sequence)
		t.want(want.differs(y.in.held[0].Payload) < 0, "what travelled with a head was overwritten while its delivery was held")
		y.releaseAll()
	}},
	{name: "memory that is not registered", need: needRegistered, run: func(t *trial) {
		x, y := t.pair()
		registrar := y.n.van.(van.Registrar)
		mem := make([]byte, 8192)
		refused := func(mem []byte, what string) {
			_, err := y.granter.Grant(mem, 1, van.RightWrite)
			t.wantErr(err, "Grant of memory "+what, stepvan.ErrNotSupported)
		}
		refused(mem, "that is not registered")
		t.must(registrar.Register(mem[:4096]), "Register")
		t.must(registrar.Register(mem[4096:]), "Register")
		refused(mem, "that two registrations hold together")
		g, err := y.granter.Grant(mem[100:200], 1, van.RightWrite)
		t.must(err, "Grant of a part of registered memory")
		t.must(registrar.Register(mem[:4096]), "Register, a second time")
		t.must(registrar.Deregister(mem[:4096]), "Deregister")
		_, err = y.granter.Grant(mem[100:200], 2, van.RightWrite)
		t.must(err, "Grant of memory with one registration left")
		t.must(registrar.Deregister(mem[:4096]), "Deregister of the last registration")
		refused(mem[100:200], "that was registered")
		y.allow.grants = true
		y.deliver(shape{}) // the peer knows the grant
		to := van.Target{Grant: g.ID, Generation: 1}
		x.deliver(shape{size: 100, target: []van.Target{to}}) // the grant keeps what it needs
		t.wantErr(x.offer(shape{size: 100, target: []van.Target{to}, raw: true}), "Send from memory that is not registered", stepvan.ErrNotSupported)
		x.deliver(shape{size: 100})
	}},
	{name: "a registration that ends under an operation", need: needRegistered, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(64*kib, 1, van.RightWrite)
		for _, size := range []int{1, 100, 4096, 64 * kib} {
			y.in.peek = func(a *arrival) {
				if d := payloadOf(y.in.salt, a.sequence).differs(g.mem[:size]); d >= 0 {
					t.fail(3, "message %d, whose source was registered when Send returned, differs at byte %d of %d", a.sequence, d, size)
				}
			}
			failed := x.count().completed - x.count().succeeded
			for range 3 {
				t.must(x.offer(shape{size: size, target: []van.Target{g.at(0)}}), "Send from registered memory")
				t.must(x.n.deregisterSource(x), "Deregister")
				x.drain()
			}
			t.want(x.count().completed-x.count().succeeded == failed, "an operation failed since its source was registered no more")
			y.in.peek = nil
		}
		g.fenced("a write from memory that is registered no more")
	}},
	// The peer writes to the grant all the time. From the completion of the withdrawal on, not a byte changes.
	{name: "withdrawal under fire", need: needOneSided, run: func(t *trial) {
		x, y := t.pair()
		a := x.n
		g := y.grant(32*kib, 1, van.RightWrite)
		y.allow.gaps = true
		mayFail(x)
		var stop atomic.Bool
		var rejected atomic.Int64
		a.pump(stop.Load)
		t.spawn(func() {
			for !stop.Load() && t.ctx.Err() == nil && rejected.Load() < 100 {
				err := x.offerWaiting(shape{size: 32 * kib, target: []van.Target{g.at(0)}})
				if errors.Is(err, stepvan.ErrStale) {
					rejected.Add(1)
					t.ring()
				}
			}
		})
		t.until("writes through the grant", func() bool { return y.count().delivered >= 20 })
		g.withdraw()
		failures := func() int { return x.count().completed - x.count().succeeded + int(rejected.Load()) }
		failed := failures()
		paint(poison, g.mem)
		t.until("writes after the withdrawal", func() bool { return rejected.Load() == 100 || failures() > failed+20 })
		stop.Store(true)
		a.wake()
		t.join()
		t.until("the last completions", x.idle)
		g.untouched("a write through a withdrawn grant")
	}},
}

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
	s.deliver(shape{})
	return g
}

// grantUntold leaves it to the van when the peer learns of the grant: before the next message.
func (s *side) grantUntold(size int, generation uint32, rights van.Rights) *granted {
	arena, err := s.t.f.memory(size + 2*grantFence)
	s.t.must(err, "Factory.Memory")
	g := &granted{s: s, arena: arena, mem: arena[grantFence : grantFence+size : grantFence+size]}
	paint(canary, g.arena)
	paint(poison, g.mem)
	if s.caps.Registered {
		s.t.must(s.n.van.(van.Registrar).Register(arena), "Register")
	}
	g.Grant, err = s.granter.Grant(g.mem, generation, rights)
	s.t.must(err, "Grant")
	s.t.want(g.Generation == generation && g.Rights == rights && g.Length == int64(size), "Grant returned %+v for %d bytes of generation %d", g.Grant, size, generation)
	s.allow.grants = true
	return g
}

// at is the target that begins at an offset.
func (g *granted) at(offset int) van.Target {
	return van.Target{Grant: g.ID, Generation: g.Generation, Offset: int64(offset)}
}

// untouched fails unless all of the memory is as it was.
func (g *granted) untouched(what string) {
	g.fenced(what)
	if at := unpainted(poison, g.mem); at >= 0 {
		g.s.t.fail(8, "%s wrote at byte %d of the grant", what, at)
	}
}

// fenced fails unless the memory around the grant is as it was.
func (g *granted) fenced(what string) {
	if unpainted(canary, g.arena[:grantFence]) >= 0 || unpainted(canary, g.arena[grantFence+len(g.mem):]) >= 0 {
		g.s.t.fail(8, "%s wrote outside of its grant", what)
	}
}

// older is the target of an older generation.
func (g *granted) older() van.Target {
	return van.Target{Grant: g.ID, Generation: g.Generation - 1}
}

// unknown is the target of a grant that nobody has made.
func (g *granted) unknown() van.Target {
	return van.Target{Grant: g.ID ^ 1<<40, Generation: g.Generation}
}

// startWithdraw withdraws the grant.
func (g *granted) startWithdraw() {
	g.s.t.must(g.s.granter.Withdraw(g.ID, g.s.begin(nil)), "Withdraw")
}

// withdraw withdraws the grant and waits for the completion.
func (g *granted) withdraw() {
	g.startWithdraw()
	g.s.t.until("completion of Withdraw", g.s.idle)
}

// writeFails sends 50 bytes to a target that must not work, with an error of the kind, unless that is nil. Neither the
// message nor a byte of it may arrive, and the connection must continue to work.
func (s *side) writeFails(through string, to van.Target, kind error) {
	through = "a write through " + through
	mayFail(s)
	before := s.count()
	err := s.offer(shape{size: 50, target: []van.Target{to}})
	if err == nil {
		s.t.until("completion of "+through, s.idle)
		s.t.want(s.count().succeeded == before.succeeded, "%s succeeded", through)
		s.out.next-- // it does not arrive
		s.out.sent--
		err = s.out.lastErr
	}
	if kind != nil {
		s.t.wantErr(err, through, kind)
	}
}
