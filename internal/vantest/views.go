package vantest

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// view maps a part of a grant of the peer of s.
func (s *side) view(t van.Target, n int, rights van.Rights) van.View {
	v, err := s.granter().Map(t, int64(n), rights)
	s.n.p.must(err, "Map")
	s.n.p.want(len(v.Bytes) == n, "Map of %d bytes returned %d", n, len(v.Bytes))
	return v
}

// viewsAreTheMemory has both sides write what the other one reads.
func viewsAreTheMemory(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	g := y.grant(200*kib, 5, van.RightWrite|van.RightRead)
	for _, r := range [][2]int{{0, 1}, {0, 200 * kib}, {4095, 2}, {4096, 8192}, {200*kib - 1, 1}} {
		v := x.view(g.at(r[0]), r[1], van.RightRead|van.RightWrite)
		paint(g.mem[r[0]:r[0]+r[1]], byte(r[1]))
		x.run(y, shape{size: 10}) // a message is what tells the other side to look
		y.run(x, shape{size: 10})
		p.want(v.Bytes[0] == byte(r[1]) && v.Bytes[r[1]-1] == byte(r[1]), "a View does not show what its owner wrote")
		paint(v.Bytes, ^byte(r[1]))
		x.run(y, shape{size: 10})
		p.want(g.mem[r[0]] == ^byte(r[1]) && g.mem[r[0]+r[1]-1] == ^byte(r[1]), "the owner does not see what was written into a View")
		v.Release()
	}
	g.fences(p)
	g.withdraw()
}

func viewsRefuse(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	_, w := p.connect(a, b)
	good := y.grant(100, 3, van.RightWrite|van.RightRead)
	foreign := w.grant(100, 3, van.RightWrite|van.RightRead)
	readOnly, writeOnly := y.grant(100, 3, van.RightRead), y.grant(100, 3, van.RightWrite)
	withdrawn := y.grant(100, 3, van.RightWrite|van.RightRead)
	withdrawn.withdraw()
	old, unknown, beyond, wraps := good.at(0), good.at(0), good.at(101), good.at(0)
	old.Generation--
	unknown.Grant ^= 1 << 40
	wraps.Offset = 1<<63 - 10
	const both = van.RightRead | van.RightWrite
	for name, c := range map[string]struct {
		t      van.Target
		n      int64
		rights van.Rights
		kind   error
	}{
		"a withdrawn grant":        {withdrawn.at(0), 1, van.RightRead, stepvan.ErrStale},
		"an older generation":      {old, 1, van.RightRead, stepvan.ErrStale},
		"an unknown grant":         {unknown, 1, van.RightRead, stepvan.ErrStale},
		"another peer's grant":     {foreign.at(0), 1, van.RightRead, stepvan.ErrStale},
		"a read-only grant":        {readOnly.at(0), 1, both, stepvan.ErrInvalid},
		"a write-only grant":       {writeOnly.at(0), 1, van.RightRead, stepvan.ErrInvalid},
		"no rights":                {good.at(0), 1, 0, stepvan.ErrInvalid},
		"no bytes":                 {good.at(0), 0, van.RightRead, stepvan.ErrInvalid},
		"a negative length":        {good.at(10), -1, van.RightRead, stepvan.ErrInvalid},
		"an offset behind the end": {beyond, 1, van.RightRead, stepvan.ErrInvalid},
		"a length behind the end":  {good.at(51), 50, van.RightRead, stepvan.ErrInvalid},
		"a length that wraps":      {good.at(51), 1<<63 - 1, van.RightRead, stepvan.ErrInvalid},
		"a negative offset":        {good.at(-1), 1, van.RightRead, stepvan.ErrInvalid},
		"an offset that wraps":     {wraps, 50, van.RightRead, stepvan.ErrInvalid},
	} {
		_, err := x.granter().Map(c.t, c.n, c.rights)
		p.want(errors.Is(err, c.kind), "Map of %s returned %v, not %v", name, err, c.kind)
	}
	x.view(readOnly.at(99), 1, van.RightRead).Release()
	x.view(good.at(0), 100, both).Release()
	x.close()
	_, err := x.granter().Map(good.at(0), 1, van.RightRead)
	p.want(errors.Is(err, stepvan.ErrClosed), "Map after Close returned %v, not stepvan.ErrClosed", err)
}

// viewsHoldWithdrawals keeps a View beyond the withdrawal of its grant.
func viewsHoldWithdrawals(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	g := y.grant(8*kib, 2, van.RightWrite|van.RightRead)
	first, second := x.view(g.at(0), 100, van.RightRead), x.view(g.at(kib), kib, van.RightRead|van.RightWrite)
	y.expectOp(func(id van.OpID) error { return y.granter().Withdraw(g.ID, id) }, "Withdraw")
	x.run(y, shape{size: 10})
	p.quiet()
	p.want(y.count().outstanding == 1, "Withdraw completed while Views were out")
	_, err := x.granter().Map(g.at(0), 1, van.RightRead)
	p.want(errors.Is(err, stepvan.ErrStale), "Map after Withdraw returned %v, not stepvan.ErrStale", err)
	x.targetFails("a grant that is being withdrawn", g.at(0), stepvan.ErrStale)
	paint(second.Bytes, 'v')
	x.run(y, shape{size: 10})
	p.want(bytes.Equal(g.mem[kib:2*kib], second.Bytes), "a View is not the memory any more after Withdraw")
	first.Release()
	p.quiet()
	p.want(y.count().outstanding == 1, "Withdraw completed while a View was out")
	second.Release()
	p.until("completion of Withdraw", y.idle)
}

// grantsAreKnown names a grant in the very next message.
func grantsAreKnown(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	for i := range 20 {
		g := y.grantUntold(100, uint32(i), van.RightRead)
		x.peek = func(*arrival) {
			v, err := x.granter().Map(g.at(0), 100, van.RightRead)
			if err != nil {
				p.fail(8, "a grant is not known when a message arrives that was sent after it: %v", err)
			}
			v.Release()
		}
		y.run(x, shape{meta: 8})
		x.peek = nil
		if i%2 == 0 {
			g.withdraw()
		}
	}
}

// viewsUnderFire maps and releases from several goroutines while grants come and go.
func viewsUnderFire(p *probe) {
	a, b := p.pair()
	x, y := p.connect(a, b)
	var current atomic.Pointer[granted]
	fresh := func(i int) {
		g := y.grant(4*kib, uint32(i), van.RightRead)
		clear(g.mem)
		current.Store(g)
	}
	fresh(0)
	var over atomic.Bool
	var viewers sync.WaitGroup
	var seen atomic.Int64
	for range 3 {
		viewers.Add(1)
		p.spawn(func() {
			defer viewers.Done()
			for !over.Load() && p.ctx.Err() == nil && seen.Load() < 1e5 {
				v, err := x.granter().Map(current.Load().at(0), 4*kib, van.RightRead)
				if err != nil {
					p.want(errors.Is(err, stepvan.ErrStale), "Map beside Withdraw returned %v, not stepvan.ErrStale", err)
					continue
				}
				if atomic.LoadUint32(word(v.Bytes)) != 0 {
					p.fail(8, "a View shows memory that was given up")
				}
				seen.Add(1)
				v.Release()
			}
		})
	}
	for i := range 50 {
		old := current.Load()
		at := seen.Load()
		p.until("views", func() bool { return seen.Load() > at || seen.Load() >= 1e5 })
		fresh(i + 1)
		old.withdraw()
		atomic.StoreUint32(word(old.mem), 1) // no View can be out
	}
	over.Store(true)
	viewers.Wait()
	p.join()
}

// word is the start of b, for an access that does not race even where a van is wrong.
func word(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[0])) }

// detachedAfterViews closes a connection on one side while the other side keeps a View.
func detachedAfterViews(p *probe) {
	for _, granterCloses := range []bool{true, false} {
		a, b := p.pair()
		x, y := p.connect(a, b)
		g := y.grant(100, 1, van.RightRead|van.RightWrite)
		h := y.grant(100, 2, van.RightRead)
		v, u := x.view(g.at(0), 100, van.RightRead|van.RightWrite), x.view(h.at(0), 100, van.RightRead)
		x.endangered()
		y.endangered()
		y.expectOp(func(id van.OpID) error { return y.granter().Withdraw(h.ID, id) }, "Withdraw") // ends in error: a View is out
		gone := x
		if granterCloses {
			y.close()
		} else {
			x.close()
			gone = y
		}
		p.until("EventLost", func() bool { return gone.count().lost })
		p.until("EventDetached on the side whose memory nobody views", func() bool { return x.count().detached })
		p.until("completion of Withdraw at the end", y.idle)
		p.quiet()
		p.want(!y.count().detached, "EventDetached came while the peer held Views")
		paint(v.Bytes, 'w')
		p.want(v.Bytes[99] == 'w' && u.Bytes[0] == poison, "the bytes of a View changed when the connection ended")
		v.Release()
		p.quiet()
		p.want(!y.count().detached, "EventDetached came while the peer held a View")
		u.Release()
		p.until("EventDetached after the last Release", func() bool { return y.count().detached })
		p.quiet()
		p.want(g.mem[0] == 'w' && g.mem[99] == 'w', "the memory of a View is not the owner's any more")
	}
}

// detachedAlways ends connections without grants, with grants, and with a withdrawal under way.
func detachedAlways(p *probe) {
	for i := range 6 {
		a, b := p.pair()
		x, y := p.connect(a, b)
		x.run(y, shape{size: 100})
		if i%3 > 0 {
			g := y.grant(kib, 1, van.RightWrite)
			x.run(y, shape{size: kib, target: []van.Target{g.at(0)}})
			if i%3 > 1 {
				y.expectOp(func(id van.OpID) error { return y.granter().Withdraw(g.ID, id) }, "Withdraw")
			}
		}
		x.endangered()
		y.endangered()
		if i%2 == 0 {
			x.close()
		} else {
			y.close()
		}
		p.until("EventDetached on both sides", func() bool { return x.count().detached && y.count().detached })
		p.quiet()
	}
}
