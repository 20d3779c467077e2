package vantest

import (
	"bytes"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var viewCases = []testCase{
	// Both sides write what the other one reads.
	{name: "views", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(200*kib, 5, bothRights)
		for _, r := range [][2]int{{0, 1}, {0, 200 * kib}, {4095, 2}, {4096, 8192}, {200*kib - 1, 1}} {
			at, n := r[0], r[1]
			v := g.view(at, n, bothRights)
			own := g.mem[at : at+n]
			paint(byte(n), own)
			x.deliver(shape{size: 10}) // a message is what tells the other side to look
			y.deliver(shape{size: 10})
			t.want(v.Bytes[0] == byte(n) && v.Bytes[n-1] == byte(n), "a View does not show what its owner wrote")
			paint(^byte(n), v.Bytes)
			x.deliver(shape{size: 10})
			t.want(own[0] == ^byte(n) && own[n-1] == ^byte(n), "the owner does not see what was written into a View")
			v.Release()
		}
		g.fenced("a write into a View")
		g.withdraw()
	}},
	{name: "foreign, stale and short views", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		_, w := t.connect(x.n, y.n)
		good, foreign, withdrawn := y.grant(100, 3, bothRights), w.grant(100, 3, bothRights), y.grant(100, 3, bothRights)
		readOnly, writeOnly := y.grant(100, 3, van.RightRead), y.grant(100, 3, van.RightWrite)
		withdrawn.withdraw()
		for name, c := range map[string]struct {
			to     van.Target
			n      int64
			rights van.Rights
			kind   error
		}{
			"a withdrawn grant":        {withdrawn.at(0), 1, van.RightRead, stepvan.ErrStale},
			"an older generation":      {good.older(), 1, van.RightRead, stepvan.ErrStale},
			"an unknown grant":         {good.unknown(), 1, van.RightRead, stepvan.ErrStale},
			"another peer's grant":     {foreign.at(0), 1, van.RightRead, stepvan.ErrStale},
			"a read-only grant":        {readOnly.at(0), 1, bothRights, stepvan.ErrInvalid},
			"a write-only grant":       {writeOnly.at(0), 1, van.RightRead, stepvan.ErrInvalid},
			"no rights":                {good.at(0), 1, 0, stepvan.ErrInvalid},
			"no bytes":                 {good.at(0), 0, van.RightRead, stepvan.ErrInvalid},
			"a negative length":        {good.at(10), -1, van.RightRead, stepvan.ErrInvalid},
			"an offset behind the end": {good.at(101), 1, van.RightRead, stepvan.ErrInvalid},
			"a length behind the end":  {good.at(51), 50, van.RightRead, stepvan.ErrInvalid},
			"a length that wraps":      {good.at(51), math.MaxInt64, van.RightRead, stepvan.ErrInvalid},
			"a negative offset":        {good.at(-1), 1, van.RightRead, stepvan.ErrInvalid},
			"an offset that wraps":     {good.at(math.MaxInt64 - 9), 50, van.RightRead, stepvan.ErrInvalid},
		} {
			_, err := x.viewer.Map(c.to, c.n, c.rights)
			t.wantErr(err, "Map of "+name, c.kind)
		}
		readOnly.view(99, 1, van.RightRead).Release()
		good.view(0, 100, bothRights).Release()
		x.close()
		_, err := x.viewer.Map(good.at(0), 1, van.RightRead)
		t.wantErr(err, "Map after Close", stepvan.ErrClosed)
	}},
	// A program may write to its memory when its Close has returned. The peer knows then that what it reads may change.
	{name: "a view after the end of its owner", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		v := y.grant(kib, 1, van.RightRead).view(0, kib, van.RightRead)
		t.want(!v.OwnerEnded(), "OwnerEnded before the peer has closed")
		mayFail(x)
		y.close()
		t.want(v.OwnerEnded(), "OwnerEnded is false after the Close of the peer")
		v.Release()
		t.until("EventLost", x.isLost)
	}},
	// Views are in use beyond the withdrawal of their grant.
	{name: "views hold up withdrawals", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(8*kib, 2, bothRights)
		first, second := g.view(0, 100, van.RightRead), g.view(kib, kib, bothRights)
		g.startWithdraw()
		x.deliver(shape{size: 10})
		t.quiet()
		t.want(y.count().outstanding == 1, "Withdraw completed while Views were out")
		_, err := x.viewer.Map(g.at(0), 1, van.RightRead)
		t.wantErr(err, "Map after Withdraw", stepvan.ErrStale)
		x.writeFails("a grant that is being withdrawn", g.at(0), stepvan.ErrStale)
		paint('v', second.Bytes)
		x.deliver(shape{size: 10})
		t.want(bytes.Equal(g.mem[kib:2*kib], second.Bytes), "a View is not the memory any more after Withdraw")
		first.Release()
		t.quiet()
		t.want(y.count().outstanding == 1, "Withdraw completed while a View was out")
		second.Release()
		t.until("completion of Withdraw", y.idle)
	}},
	// The very next message names the grant.
	{name: "a peer that hears of a grant knows it", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		for i := range 20 {
			g := y.grantUntold(100, uint32(i), van.RightRead)
			x.in.peek = func(*arrival) {
				v, err := x.viewer.Map(g.at(0), 100, van.RightRead)
				if err != nil {
					t.fail(8, "a grant is not known when a message arrives that was sent after it: %v", err)
				}
				v.Release()
			}
			y.deliver(shape{meta: 8})
			x.in.peek = nil
			if i%2 == 0 {
				g.withdraw()
			}
		}
	}},
	// Several goroutines map and release while grants come and go.
	{name: "views under fire", need: needViews, run: func(t *trial) {
		x, y := t.pair()
		var current atomic.Pointer[granted]
		share := func(i int) {
			g := y.grant(4*kib, uint32(i), van.RightRead)
			clear(g.mem)
			current.Store(g)
		}
		share(0)
		var over atomic.Bool
		var seen atomic.Int64
		for range 3 {
			t.spawn(func() {
				for !over.Load() && t.ctx.Err() == nil && seen.Load() < 1e5 {
					v, err := x.viewer.Map(current.Load().at(0), 4*kib, van.RightRead)
					if err != nil {
						t.wantErr(err, "Map beside Withdraw", stepvan.ErrStale)
						continue
					}
					if atomic.LoadUint32(word(v.Bytes)) != 0 {
						t.fail(8, "a View shows memory that was given up")
					}
					seen.Add(1)
					v.Release()
				}
			})
		}
		for i := range 50 {
			old := current.Load()
			at := seen.Load()
			t.until("views", func() bool { return seen.Load() > at || seen.Load() >= 1e5 })
			share(i + 1)
			old.withdraw()
			atomic.StoreUint32(word(old.mem), 1) // no View can be out
		}
		over.Store(true)
		t.join()
	}},
}

var detachCases = []testCase{
	// The connection closes on one side while x keeps Views of the memory of y.
	{name: "detached when no view is left", need: needViews, run: func(t *trial) {
		for _, ownerCloses := range []bool{true, false} {
			x, y := t.pair()
			g, h := y.grant(100, 1, bothRights), y.grant(100, 2, van.RightRead)
			v, u := g.view(0, 100, bothRights), h.view(0, 100, van.RightRead)
			mayFail(x, y)
			h.startWithdraw() // ends in error: a View is out
			closer := x
			if ownerCloses {
				closer = y
			}
			closer.close()
			t.until("EventLost", closer.peer.isLost)
			t.until("EventDetached on the side whose memory nobody views", x.isDetached)
			t.until("completion of Withdraw at the end", y.idle)
			t.quiet()
			t.want(!y.isDetached(), "EventDetached came while the peer held Views")
			paint('w', v.Bytes)
			t.want(v.Bytes[99] == 'w' && u.Bytes[0] == poison, "the bytes of a View changed when the connection ended")
			v.Release()
			t.quiet()
			t.want(!y.isDetached(), "EventDetached came while the peer held a View")
			u.Release()
			t.until("EventDetached after the last Release", y.isDetached)
			t.quiet()
			t.want(g.mem[0] == 'w' && g.mem[99] == 'w', "the memory of a View is not the owner's any more")
		}
	}},
	// Connections end without grants, with grants, and with a withdrawal under way.
	{name: "detached in the end", need: needOneSided, run: func(t *trial) {
		for i := range 6 {
			x, y := t.pair()
			x.deliver(shape{size: 100})
			if i%3 > 0 {
				g := y.grant(kib, 1, van.RightWrite)
				x.deliver(shape{size: kib, target: []van.Target{g.at(0)}})
				if i%3 > 1 {
					g.startWithdraw()
				}
			}
			mayFail(x, y)
			if i%2 == 0 {
				x.close()
			} else {
				y.close()
			}
			t.until("EventDetached on both sides", func() bool { return x.isDetached() && y.isDetached() })
			t.quiet()
		}
	}},
	// The peer writes to the grant all the time, while the connection ends. From EventDetached on, not a byte changes.
	{name: "detachment under fire", need: needOneSided, run: func(t *trial) {
		for _, ownerCloses := range []bool{true, false} {
			x, y := t.pair()
			g := y.grant(32*kib, 1, van.RightWrite)
			mayFail(x, y)
			var over atomic.Bool
			x.n.pump(over.Load)
			t.spawn(func() {
				for refused := 0; refused < 20 && t.ctx.Err() == nil; {
					if x.offerWaiting(shape{size: 32 * kib, target: []van.Target{g.at(0)}}) != nil {
						refused++
					}
				}
				over.Store(true)
				x.n.wake()
			})
			t.until("writes through the grant", func() bool { return y.count().delivered >= 20 })
			closer := x
			if ownerCloses {
				closer = y
			}
			closer.close()
			t.until("EventDetached under fire", y.isDetached)
			paint(poison, g.mem)
			t.join()
			t.until("the last completions", x.idle)
			t.quiet()
			g.untouched("a write after EventDetached")
		}
	}},
	// A peer that sees nothing is not asked.
	{name: "detached while the peer stands still", need: needBlind, run: func(t *trial) {
		x, y := t.pair()
		g := y.grant(kib, 1, van.RightWrite)
		x.deliver(shape{size: kib, target: []van.Target{g.at(0)}})
		pause(x.n)
		mayFail(x)
		y.close()
		t.until("EventDetached while the peer stands still", y.isDetached)
		resume(x.n)
		t.until("EventLost", x.isLost)
	}},
}

// view has the peer map a part of the grant.
func (g *granted) view(offset, n int, rights van.Rights) van.View {
	v, err := g.s.peer.viewer.Map(g.at(offset), int64(n), rights)
	g.s.t.must(err, "Map")
	g.s.t.want(len(v.Bytes) == n, "Map of %d bytes returned %d", n, len(v.Bytes))
	return v
}

// word is the start of b, for an access that does not race even where a van is wrong.
func word(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[0])) }
