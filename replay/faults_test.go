package replay

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// puppet is a collector whose answers the test chooses.
type puppet struct {
	p    *pairtest.PeerOfCluster
	asks chan ask
}

func newPuppet(t *testing.T, p *pairtest.PeerOfCluster) *puppet {
	t.Helper()
	x := &puppet{p, make(chan ask, 100)}
	stop, err := p.Listen(topicOf(rigName, false), func(_ stepvan.Rank, body []byte) {
		if h, err := parseHead(body); err == nil && h.kind == kindAsk {
			if a, err := parseAsk(h, body); err == nil {
				x.asks <- a
			}
		}
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return x
}

// answer is the right note for an ask.
func answer(a *ask) note {
	n := note{head: a.head, slot: a.slot, first: a.first, rows: a.rows, written: 9, held: 9}
	n.kind, n.picks, n.dtype = kindNote, 0, 0
	return n
}

// put writes rows of one value from a row on, with a note.
func (x *puppet) put(t *testing.T, a *ask, value float32, first, rows uint64, note []byte) error {
	t.Helper()
	width := int64(a.width)
	list := slices.Repeat([]float32{value}, int(rows)*int(width))
	m, err := tensor.FromSlice(list, int64(rows), width)
	require.NoError(t, err)
	h, err := x.p.Put(m.Strided(), a.token, []int64{int64(first), 0}, note)
	if err != nil {
		return err
	}
	return h.Wait(pairtest.Context(t))
}

// Each mistake of a collector fails the tick, with its name. The next attempt works.
func TestWhatACollectorMayNotSay(t *testing.T) {
	type change struct {
		name string
		note func(n *note) []byte
		want string
	}
	plain := func(f func(n *note)) func(n *note) []byte {
		return func(n *note) []byte { f(n); return n.append(nil) }
	}
	changes := []change{
		{"slot out of range", plain(func(n *note) { n.slot = 2 }), "it names slot 2: there is no such slot (want 0 to 1)"},
		{"hot slot", plain(func(n *note) { n.slot = 1 - n.slot }), "which is hot: the learner reads it"},
		{"another tick", plain(func(n *note) { n.tick++ }), "it packed tick"},
		{"rows of others", plain(func(n *note) { n.first = 0; n.rows = 64 }), "it says that it wrote 64 rows from row 0 on, and was asked for 32"},
		{"beyond the batch", plain(func(n *note) { n.rows = 1 << 63 }), "it says that it wrote"},
		{"around the end", plain(func(n *note) { n.first = 40; n.rows = ^uint64(0) - 3 }), "it says that it wrote"},
		{"no rows", plain(func(n *note) { n.rows = 0 }), "it says that it wrote 0 rows"},
		{"short", func(n *note) []byte { return n.append(nil)[:40] }, "a note of 40 bytes"},
		{"no message", func(*note) []byte { return []byte("tick") }, "not a message"},
		{"another version", func(n *note) []byte { b := n.append(nil); b[atVersion] = 9; return b }, "version 9"},
		{"another kind", func(n *note) []byte { b := n.append(nil); b[atKind] = 9; return b }, "kind 9"},
	}
	x := newRing(t, pairtest.Shm(), options(64, 1, 2))
	x.collect(t, 1, 40, 64)
	liar := newPuppet(t, x.peers[2])
	tick := Tick(0)
	good := func() {
		t.Helper()
		tick++
		begun, err := x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		require.True(t, begun)
		a := <-liar.asks
		n := answer(&a)
		require.NoError(t, liar.put(t, &a, 7, a.first, a.rows, n.append(nil)))
		b := x.sample(t, tick)
		want := append(picked(small(), 1000+uint64(tick), 64, 40, 64)[:32*32], slices.Repeat([]byte{0, 0, 0xE0, 0x40}, 32*8)...)
		require.Equal(t, want, b.Rows.Bytes())
		require.NoError(t, x.ring.AfterTick())
	}
	good()
	good() // so that slot 1 was hot, and slot 0 is
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			tick++
			_, err := x.ring.StartPrepare(tick, 64, 0)
			require.NoError(t, err)
			a := <-liar.asks
			n := answer(&a)
			_ = liar.put(t, &a, -1, a.first, 1, c.note(&n))
			err = x.ring.WaitUntilReady(pairtest.Context(t), tick, 64)
			require.ErrorIs(t, err, stepvan.ErrRemote)
			require.ErrorContains(t, err, "peer 2")
			require.ErrorContains(t, err, c.want)
			_, again := x.ring.Sample(pairtest.Context(t), tick, 64)
			require.Equal(t, err, again)
			good()
		})
	}
	t.Run("rows twice", func(t *testing.T) {
		tick++
		_, err := x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		a := <-liar.asks
		n := answer(&a)
		n.rows = 8
		for range 2 {
			_ = liar.put(t, &a, -1, a.first, 8, n.append(nil))
		}
		require.ErrorContains(t, x.ring.WaitUntilReady(pairtest.Context(t), tick, 64), "it says twice that it wrote some of the 8 rows")
		good()
	})
	t.Run("late rows", func(t *testing.T) { // of an attempt that was given up: they do no harm
		tick++
		_, err := x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		late := <-liar.asks
		require.NoError(t, liar.p.Mail(0, topicOf(rigName, true), appendRefusal(nil, late.head, "no rows today")))
		require.ErrorContains(t, x.ring.WaitUntilReady(pairtest.Context(t), tick, 64), "no rows today")
		_, err = x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		a := <-liar.asks
		require.NotEqual(t, late.attempt, a.attempt)
		n := answer(&late)
		for err = nil; err == nil; { // until the window of the old memory is closed
			err = liar.put(t, &late, -1, a.first, a.rows, n.append(nil))
		}
		require.ErrorIs(t, err, stepvan.ErrStale)
		n = answer(&a)
		n.rows = 16 // whole in two parts
		require.NoError(t, liar.put(t, &a, 7, a.first, 16, n.append(nil)))
		ok, err := x.ring.BatchReady(tick, 64)
		require.NoError(t, err)
		require.False(t, ok)
		n.first += 16
		require.NoError(t, liar.put(t, &a, 7, n.first, 16, n.append(nil)))
		b := x.sample(t, tick)
		require.NotContains(t, b.Rows.String(), "-1")
		require.Equal(t, slices.Repeat([]byte{0, 0, 0xE0, 0x40}, 32*8), b.Rows.Bytes()[32*32:])
		require.NoError(t, x.ring.AfterTick())
		good()
	})
	t.Run("an error that nobody has got", func(t *testing.T) {
		tick++
		_, err := x.ring.StartPrepare(tick, 64, 0)
		require.NoError(t, err)
		a := <-liar.asks
		require.NoError(t, liar.p.Mail(0, topicOf(rigName, true), appendRefusal(nil, a.head, "no rows today")))
		require.Eventually(t, func() bool {
			_, err = x.ring.StartPrepare(tick, 64, 0)
			return err != nil
		}, pairtest.WaitLimit, time.Millisecond)
		require.ErrorContains(t, err, "no rows today")
		good()
	})
}

// A collector that cannot do what it is asked for says why.
func TestACollectorRefuses(t *testing.T) {
	o := options(64, 1)
	o.Layout = Layout{tensor.Float64, []Field{{"x", 3}}}
	x := newRing(t, pairtest.Mem(), o)
	x.collect(t, 1, 5, 64)
	_, err := x.ring.Sample(pairtest.Context(t), 1, 64)
	require.ErrorIs(t, err, stepvan.ErrRemote)
	require.ErrorContains(t, err, "the rows differ (got 3 columns of float64, want 8 of float32)")

	var mu sync.Mutex
	var answers []string
	stop, err := x.peers[3].Listen(topicOf("other", true), func(_ stepvan.Rank, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, refusalText(body))
	})
	require.NoError(t, err)
	defer stop()
	b, err := NewBuffer(small(), 1)
	require.NoError(t, err)
	c, err := NewCollector(x.peers[2].Peer, CollectorOptions{Name: "other", Learner: 3, Buffer: b})
	require.NoError(t, err)
	good := ask{head: head{kind: kindAsk, picks: picksSplitMix, dtype: tensor.Float32}, width: 8, count: 4, rows: 4}
	torch, wide, beyond, none := good, good, good, good
	torch.picks, wide.width, beyond.first, none.rows = picksTorch, 1<<31, 1, 0
	for i, body := range [][]byte{torch.append(nil), wide.append(nil), beyond.append(nil), none.append(nil), good.append(nil)[:100], (&head{kind: kindNote}).append(nil)} {
		require.NoError(t, x.peers[3].Mail(2, topicOf("other", false), body))
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(answers) == i+2 }, pairtest.WaitLimit, time.Millisecond)
	}
	for i, want := range []string{"have the ring pick with splitmix", "rows of 2147483648 columns", "4 rows from row 1 on of a batch of 4", "0 rows", "an ask of 100 bytes", "kind 4"} {
		require.Contains(t, answers[i+1], want) // the first says that it joins
	}
	require.NoError(t, x.peers[1].Mail(2, topicOf("other", false), good.append(nil))) // not its learner
	require.NoError(t, c.Close(pairtest.Context(t)))
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(answers) == 8 }, pairtest.WaitLimit, time.Millisecond) // that it leaves
}

// die ends a peer as its death does, and as the scheduler tells it to the others.
func (x *rig) die(t *testing.T, rank int) {
	t.Helper()
	require.NoError(t, x.peers[rank].Transport.Abort())
	for i, p := range x.peers {
		if i != rank {
			p.Service.Lost(p.Members()[rank].ID, stepvan.ErrPeerLost)
		}
	}
}

// A collector dies with half of its rows written. Others pack all rows again, by the same seed.
func TestOthersPackTheRowsOfADeadCollector(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		x := newRing(t, v, options(64, 1, 2))
		x.collect(t, 2, 40, 64)
		mortal := newPuppet(t, x.peers[1])
		_, err := x.ring.StartPrepare(5, 64, 0)
		require.NoError(t, err)
		a := <-mortal.asks
		n := answer(&a)
		n.rows = 16
		require.NoError(t, mortal.put(t, &a, -1, a.first, 16, n.append(nil)))
		x.die(t, 1)
		b := x.sample(t, 5)
		require.Equal(t, picked(small(), 1005, 64, 40, 64), b.Rows.Bytes())
		require.Equal(t, []stepvan.Rank{1}, x.ring.Lost())
		require.EqualValues(t, 40, b.Written)
		require.NoError(t, x.ring.AfterTick())
		b = x.sample(t, 6)
		require.Equal(t, picked(small(), 1006, 64, 40, 64), b.Rows.Bytes())
		require.NoError(t, x.ring.AfterTick())

		_, err = x.ring.StartPrepare(7, 64, 1000) // it waits for rows that never come
		require.NoError(t, err)
		x.die(t, 2)
		_, err = x.ring.Sample(pairtest.Context(t), 7, 64)
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
		require.ErrorContains(t, err, "peer 1, peer 2")
		_, err = x.ring.StartPrepare(8, 64, 0)
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
	})
}

// A collector that is closed leaves its rows to the others.
func TestACollectorLeaves(t *testing.T) {
	x := newRig(t, pairtest.Shm(), options(64, 1, 2), 40, 64)
	_, err := x.ring.StartPrepare(1, 64, 41)
	require.NoError(t, err)
	require.NoError(t, x.collectors[0].Close(pairtest.Context(t)))
	require.NoError(t, x.buffers[1].Add(t.Context(), rowsOf(small(), 40, 1)))
	b := x.sample(t, 1)
	require.Equal(t, picked(small(), 1001, 64, 41, 64), b.Rows.Bytes())
	require.Equal(t, []stepvan.Rank{1}, x.ring.Lost())
	require.NoError(t, x.collectors[0].Err())
	require.NoError(t, x.ring.AfterTick())

	x.collect(t, 1, 41, 64) // it comes back
	require.Eventually(t, func() bool { return len(x.ring.Lost()) == 0 }, pairtest.WaitLimit, time.Millisecond)
	b = x.sample(t, 2)
	require.Equal(t, picked(small(), 1002, 64, 41, 64), b.Rows.Bytes())
	require.EqualValues(t, 82, b.Written, "both have packed rows")
}

// Rings follow one another under one name. What is left of the first one does not disturb the second.
func TestOneRingAfterAnother(t *testing.T) {
	x := newRing(t, pairtest.Mem(), options(64, 1, 2))
	for tick := range Tick(20) {
		x.collect(t, 1, 40, 64)
		x.collect(t, 2, 40, 64)
		b := x.sample(t, tick)
		require.Equal(t, picked(small(), 1000+uint64(tick), 64, 40, 64), b.Rows.Bytes())
		require.NoError(t, x.ring.Close(pairtest.Context(t)))
		for _, c := range x.collectors {
			if tick%2 == 0 {
				require.NoError(t, c.Close(pairtest.Context(t)))
			}
			<-c.Done()
		}
		x.collectors = nil
		x.open(t, options(64, 1, 2))
	}
}

// A collector whose learner dies ends, also while it waits for rows.
func TestACollectorOutlivesItsLearner(t *testing.T) {
	for _, rows := range []int{0, 40} {
		x := newRig(t, pairtest.Shm(), options(64, 1), rows, 64)
		_, err := x.ring.StartPrepare(1, 64, 100)
		require.NoError(t, err)
		x.die(t, 0)
		<-x.collectors[0].Done()
		require.ErrorIs(t, x.collectors[0].Err(), stepvan.ErrPeerLost)
		require.ErrorContains(t, x.collectors[0].Err(), "the learner")
		require.NoError(t, x.ring.Close(pairtest.Context(t)))
		_, err = x.ring.Sample(pairtest.Context(t), 1, 64)
		require.ErrorIs(t, err, stepvan.ErrClosed)
	}
}
