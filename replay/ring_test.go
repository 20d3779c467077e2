package replay

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

func eachVan(t *testing.T, f func(t *testing.T, v pairtest.Van)) {
	for _, v := range pairtest.Vans() {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

// A batch has the rows that its seed picks, whichever process packs it.
func TestABatchHasTheRowsThatItsSeedPicks(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for _, c := range []struct {
			ranks          []stepvan.Rank
			rows           int64
			have, capacity int
		}{
			{[]stepvan.Rank{0}, 100, 50, 64}, // of the learner's process
			{[]stepvan.Rank{1}, 100, 50, 64},
			{[]stepvan.Rank{1}, 100, 150, 64}, // it has wrapped around
			{[]stepvan.Rank{2, 0, 1}, 100, 150, 64},
			{[]stepvan.Rank{1, 2, 3}, 2, 1, 1}, // more collectors than rows
			{[]stepvan.Rank{1, 2}, 70_000, 5000, 5000},
		} {
			t.Run(fmt.Sprint(c.ranks, c.rows, c.have), func(t *testing.T) {
				x := newRig(t, v, options(c.rows, c.ranks...), c.have, c.capacity)
				for tick := Tick(3); tick < 7; tick++ {
					b := x.sample(t, tick)
					require.Equal(t, picked(small(), 1000+uint64(tick), c.rows, c.have, c.capacity), b.Rows.Bytes())
					shares := uint64(min(len(c.ranks), int(c.rows)))
					require.Equal(t, []uint64{shares * uint64(c.have), shares * uint64(min(c.have, c.capacity)), 1000 + uint64(tick)}, []uint64{b.Written, b.Held, b.Seed})
					require.NoError(t, x.ring.AfterTick())
				}
				again := x.sample(t, 3) // the same seed: the same batch
				require.Equal(t, picked(small(), 1003, c.rows, c.have, c.capacity), again.Rows.Bytes())
			})
		}
	})
}

func TestFieldsAreColumns(t *testing.T) {
	x := newRig(t, pairtest.Mem(), options(10, 1), 8, 8)
	b := x.sample(t, 1)
	for name, want := range map[string][]int64{"obs": {0, 5}, "action": {5, 2}, "reward": {7, 1}} {
		f, err := b.Field(name)
		require.NoError(t, err)
		require.Equal(t, []int64{10, want[1]}, f.Dims())
		require.Equal(t, []int64{8, 1}, f.Strides())
		memory := f.Memory()
		require.Equal(t, b.Rows.Address()+uintptr(4*want[0]), memory.Address())
	}
	_, err := b.Field("done")
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, `field "done"`)
}

// The learner prepares the next batch while it reads one, which stays as it is.
func TestTheHotBatchStaysWhileTheNextIsPacked(t *testing.T) {
	for _, depth := range []int{2, 3} {
		o := options(64, 1, 2)
		o.Depth = depth
		x := newRig(t, pairtest.Shm(), o, 40, 64)
		for tick := range Tick(10) {
			b := x.sample(t, tick)
			begun, err := x.ring.StartPrepare(tick+1, 64, 0)
			require.NoError(t, err)
			require.True(t, begun)
			require.NoError(t, x.ring.WaitUntilReady(pairtest.Context(t), tick+1, 64))
			require.Equal(t, picked(small(), 1000+uint64(tick), 64, 40, 64), b.Rows.Bytes())
			same := x.sample(t, tick)
			require.Equal(t, b.Rows.Address(), same.Rows.Address())
			require.NoError(t, x.ring.AfterTick())
			ok, err := x.ring.BatchReady(tick+1, 64)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
}

func TestWhatARingRefuses(t *testing.T) {
	x := newRig(t, pairtest.Mem(), options(64, 1), 0, 64)
	r, ctx := x.ring, pairtest.Context(t)
	invalid := func(err error, text string) {
		t.Helper()
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
	const size = "rows: not those of the ring (got 63, want 64)"
	_, err := r.StartPrepare(1, 63, 0)
	invalid(err, size)
	_, err = r.BatchReady(1, 63)
	invalid(err, size)
	invalid(r.WaitUntilReady(ctx, 1, 63), size)
	_, err = r.Sample(ctx, 1, 63)
	invalid(err, size)

	require.NoError(t, r.AfterTick()) // there is no batch
	ok, err := r.BatchReady(5, 64)
	require.NoError(t, err)
	require.False(t, ok)
	for _, want := range []bool{true, false} { // the same tick again is allowed
		begun, err := r.StartPrepare(5, 64, 0)
		require.NoError(t, err)
		require.Equal(t, want, begun)
	}
	_, err = r.StartPrepare(6, 64, 0)
	invalid(err, "tick 6: the batch of tick 5 was not taken")
	invalid(r.WaitUntilReady(ctx, 6, 64), "tick 6: the batch of tick 5 is prepared")
	_, err = r.Sample(ctx, 6, 64)
	invalid(err, "tick 6: the batch of tick 5 is prepared")

	soon, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.Sample(soon, 5, 64)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "tick 5: rows are missing from peer 1 (64 of 64 rows)")

	require.NoError(t, x.buffers[0].Add(ctx, rowsOf(small(), 0, 10)))
	x.sample(t, 5)
	_, err = r.Sample(ctx, 6, 64)
	invalid(err, "tick 6: the learner holds the batch of tick 5")
	ok, err = r.BatchReady(6, 64)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, r.WaitUntilReady(ctx, 5, 64))

	require.NoError(t, r.Close(ctx))
	require.NoError(t, r.Close(ctx))
	_, err = r.StartPrepare(6, 64, 0)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	_, err = r.BatchReady(5, 64)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	_, err = r.Sample(ctx, 5, 64)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorIs(t, r.WaitUntilReady(ctx, 5, 64), stepvan.ErrClosed)
	require.NoError(t, r.AfterTick())
	<-x.collectors[0].Done() // it was told
	require.NoError(t, x.collectors[0].Err())
}

func TestRingsAndCollectorsThatCannotBeMade(t *testing.T) {
	peers := pairtest.NewPeers(t, pairtest.Options{}, 2)
	for text, change := range map[string]func(*Options){
		"name: its length":              func(o *Options) { o.Name = "" },
		"depth: too few":                func(o *Options) { o.Depth = 1 },
		"rows: out of range (got 0":     func(o *Options) { o.Rows = 0 },
		"memory: there is no allocator": func(o *Options) { o.Memory = nil },
		"collectors: the list is empty": func(o *Options) { o.Collectors = nil },
		"rank 2 is wrong":               func(o *Options) { o.Collectors = []stepvan.Rank{2} },
		"rank 1 is wrong or there":      func(o *Options) { o.Collectors = []stepvan.Rank{1, 1} },
		"dtype: not a type":             func(o *Options) { o.Layout.DType = 0 },
		"a row has no field":            func(o *Options) { o.Layout.Fields = nil },
		`field "x": its width`:          func(o *Options) { o.Layout.Fields = []Field{{"x", 0}} },
		`field "x": it is there twice`:  func(o *Options) { o.Layout.Fields = []Field{{"x", 1}, {"x", 1}} },
		"a row is too wide":             func(o *Options) { o.Layout.Fields = []Field{{"x", maxWidth}, {"y", 1}} },
	} {
		o := options(10, 1)
		o.Memory = peers[0].Memory
		change(&o)
		_, err := NewRing(peers[0].Peer, o)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
		require.ErrorContains(t, err, text)
	}
	_, err := NewBuffer(small(), 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = NewBuffer(Layout{tensor.Float32, []Field{{"x", maxWidth}}}, maxRows)
	require.ErrorContains(t, err, "larger than any memory")
	b, err := NewBuffer(small(), 4)
	require.NoError(t, err)
	for text, o := range map[string]CollectorOptions{
		"name: its length":     {Buffer: b},
		"buffer: it is":        {Name: "x"},
		"learner: the cluster": {Name: "x", Buffer: b, Learner: 2},
	} {
		_, err := NewCollector(peers[0].Peer, o)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
		require.ErrorContains(t, err, text)
	}
	c, err := NewCollector(peers[0].Peer, CollectorOptions{Name: "x", Buffer: b})
	require.NoError(t, err)
	_, err = NewCollector(peers[0].Peer, CollectorOptions{Name: "x", Buffer: b})
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.NoError(t, c.Close(pairtest.Context(t)))
}
