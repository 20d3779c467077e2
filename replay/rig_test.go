package replay

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/tensor"
)

// small is a layout of rows of 32 bytes.
func small() Layout {
	return Layout{tensor.Float32, []Field{{"obs", 5}, {"action", 2}, {"reward", 1}}}
}

// rowsOf are the rows from number first on, which all differ.
func rowsOf(l Layout, first, n int) []byte {
	var b []byte
	for i := range n {
		for c := range l.Width() {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((first+i)*100)+float32(c)))
		}
	}
	return b
}

// rig is a ring at peer 0, and collectors at other peers, which have equal buffers.
type rig struct {
	peers      []*pairtest.PeerOfCluster
	ring       *Ring
	buffers    []*Buffer
	collectors []*Collector
}

const rigName = "test"

// newRig makes a ring and collectors at the ranks of o. Each has so many rows.
func newRig(t testing.TB, v pairtest.Van, o Options, rows, capacity int) *rig {
	t.Helper()
	x := newRing(t, v, o)
	for _, rank := range o.Collectors {
		x.collect(t, int(rank), rows, capacity)
	}
	return x
}

// newRing makes a ring without collectors.
func newRing(t testing.TB, v pairtest.Van, o Options) *rig {
	t.Helper()
	x := &rig{peers: pairtest.NewPeers(t, pairtest.Options{Van: v}, 4)}
	x.open(t, o)
	return x
}

// options make a ring with these collectors.
func options(rows int64, ranks ...stepvan.Rank) Options {
	return Options{Name: rigName, Layout: small(), Rows: rows, Seed: 1000, Collectors: ranks}
}

func (x *rig) open(t testing.TB, o Options) {
	t.Helper()
	o.Memory, o.Log = x.peers[0].Memory, zerolog.Nop()
	var err error
	x.ring, err = NewRing(x.peers[0].Peer, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.ring.Close(pairtest.Context(t))) })
}

// collect starts a collector.
func (x *rig) collect(t testing.TB, rank, rows, capacity int) (*Buffer, *Collector) {
	t.Helper()
	b, err := NewBuffer(small(), capacity)
	require.NoError(t, err)
	for i := range rows {
		require.NoError(t, b.Add(t.Context(), rowsOf(small(), i, 1)))
	}
	c, err := NewCollector(x.peers[rank].Peer, CollectorOptions{Name: rigName, Buffer: b, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(pairtest.Context(t))) })
	x.buffers, x.collectors = append(x.buffers, b), append(x.collectors, c)
	return b, c
}

// sample takes a batch, and gives the slot back at the end of the test of it.
func (x *rig) sample(t testing.TB, tick Tick) Batch {
	t.Helper()
	b, err := x.ring.Sample(pairtest.Context(t), tick, x.ring.opt.Rows)
	require.NoError(t, err)
	return b
}

// picked is the batch that buffers with rows 0 to n-1 give, when they keep so many.
func picked(l Layout, seed uint64, rows int64, n, capacity int) (b []byte) {
	for i := range rows {
		at := int(Pick(seed, uint64(i), uint64(min(n, capacity))))
		for at+capacity < n { // it was replaced
			at += capacity
		}
		b = append(b, rowsOf(l, at, 1)...)
	}
	return b
}
