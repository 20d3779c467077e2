package peer_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// manyMoves is a plan of 10,000 moves of 8 bytes from 4 peers to 2. Its elements are a number each.
type manyMoves struct {
	srcs, dsts []*tensor.Tensor
	plans      []*peer.Plan
}

const (
	manySenders, manyReceivers = 4, 2
	movesOfPair                = 10_000 / (manySenders * manyReceivers)
)

func newManyMoves(t testing.TB, all []*pairtest.PeerOfCluster) *manyMoves {
	t.Helper()
	x := &manyMoves{}
	sends, recvs := make([][]peer.Move, len(all)), make([][]peer.Move, len(all))
	for i, p := range all {
		n := int64(movesOfPair * manyReceivers)
		if i >= manySenders {
			n = movesOfPair * manySenders
		}
		y, err := p.Memory.Zeros(tensor.Int64, n)
		require.NoError(t, err)
		t.Cleanup(func() { pairtest.Free(t, y) })
		if i < manySenders {
			x.srcs = append(x.srcs, &y)
		} else {
			x.dsts = append(x.dsts, &y)
		}
	}
	for s, src := range x.srcs {
		for r, dst := range x.dsts {
			for k := range int64(movesOfPair) {
				// Neighbours of a pair are not neighbours in memory.
				from, err := src.AsStrided(tensor.ShapeOf(1), []int64{1}, k*manyReceivers+int64(r))
				require.NoError(t, err)
				to, err := dst.AsStrided(tensor.ShapeOf(1), []int64{1}, k*manySenders+int64(s))
				require.NoError(t, err)
				sends[s] = append(sends[s], peer.Move{ID: uint64(k), Peer: stepvan.Rank(manySenders + r), View: from})
				recvs[manySenders+r] = append(recvs[manySenders+r], peer.Move{ID: uint64(k), Peer: stepvan.Rank(s), View: to})
			}
		}
	}
	x.plans = planEverywhere(t, all, "many", sends, recvs)
	return x
}

func (x *manyMoves) fill(t testing.TB, version int64) {
	t.Helper()
	for s, src := range x.srcs {
		v, err := tensor.As[int64](*src)
		require.NoError(t, err)
		for i := range v {
			v[i] = version<<32 | int64(s)<<24 | int64(i)
		}
	}
}

func (x *manyMoves) check(t testing.TB, version int64) {
	t.Helper()
	for r, dst := range x.dsts {
		v, err := tensor.As[int64](*dst)
		require.NoError(t, err)
		for i, got := range v {
			s, k := i%manySenders, i/manySenders
			if want := version<<32 | int64(s)<<24 | int64(k*manyReceivers+r); got != want {
				require.Equal(t, want, got, "element %d at receiver %d", i, r)
			}
		}
	}
}

// A run of 10,000 small moves in 8 pairs costs 2 messages a pair, and no allocation.
func TestARunOfManyMovesIsTwoMessagesAPair(t *testing.T) {
	v, traffic := pairtest.Watch(pairtest.Shm())
	all := pairtest.NewPeers(t, pairtest.Options{Van: v}, manySenders+manyReceivers)
	x := newManyMoves(t, all)
	var handles [manySenders + manyReceivers]peer.Handle
	version := uint64(0)
	run := func() {
		version++
		for i, pl := range x.plans {
			h, err := pl.Begin(version)
			if err != nil {
				require.NoError(t, err)
			}
			handles[i] = h
		}
		for left := true; left; {
			left = false
			for i := range handles {
				if !handles[i].Done() {
					_ = handles[i].WaitFor(0)
					left = true
				}
			}
		}
	}
	for range 50 {
		run()
	}
	const runs = 100
	x.fill(t, int64(version))
	before := traffic.Notes.Load()
	allocs := testing.AllocsPerRun(runs, run) // and once before it counts
	require.EqualValues(t, 2*manySenders*manyReceivers*(runs+1), traffic.Notes.Load()-before)
	if !pairtest.Race {
		require.Zero(t, allocs)
	}
	for _, h := range handles {
		require.NoError(t, h.Err())
	}
	x.check(t, int64(version)-runs-1)
}

// Plans that are made, run and closed again and again leave nothing behind: no edge, no letter, no goroutine.
func TestPlansLeaveNothing(t *testing.T) {
	for _, v := range []pairtest.Van{pairtest.Shm(), pairtest.TCP()} {
		t.Run(v.Name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
			x := newExchange(t, all, 16, 64, shared, heap)
			lives := func(n int) {
				for range n {
					plans, errs := tryPlan(t, all, "weights", x.sends, x.recvs)
					require.NoError(t, errors.Join(errs...))
					for version := range uint64(10) {
						runEverywhere(t, plans, version+1)
					}
					closeAll(t, plans)
				}
			}
			lives(20)
			kept, goroutines := make([]string, 2), runtime.NumGoroutine()
			for i, p := range all {
				kept[i] = peer.KeptBy(p.Peer)
			}
			lives(100)
			for i, p := range all {
				require.Equal(t, kept[i], peer.KeptBy(p.Peer))
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
		})
	}
}

func closeAll(t testing.TB, plans []*peer.Plan) {
	t.Helper()
	var g errgroup.Group
	for _, pl := range plans {
		g.Go(func() error { return pl.Close(pairtest.Context(t)) })
	}
	require.NoError(t, g.Wait())
}
