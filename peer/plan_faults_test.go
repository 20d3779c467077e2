package peer_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// begin begins a run, and returns its handle.
func begin(t testing.TB, pl *peer.Plan, version uint64) peer.Handle {
	t.Helper()
	h, err := pl.Begin(version)
	require.NoError(t, err)
	return h
}

// Close of a plan waits for the copies within the process, also after a run that has completed.
func TestCloseWaitsForCopiesWithinAProcess(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	const side = 1024 // the rows of one are the columns of the other, which takes a while
	src, dst := filled(t, p, heap, side*side, 1), empty(t, p, heap, side*side)
	turned, err := src.AsStrided(tensor.ShapeOf(side, side), []int64{1, side}, 0)
	require.NoError(t, err)
	for range 20 {
		pl, err := p.Plan(pairtest.Context(t), "own", []peer.Move{{ID: 1, View: turned}}, []peer.Move{{ID: 1, View: matrix(t, dst, side)}})
		require.NoError(t, err)
		require.NoError(t, begin(t, pl, 1).Wait(pairtest.Context(t)))
		clear(dst.Bytes())
		h := begin(t, pl, 2)
		for i := 0; i < 1000 && (pairtest.Race || dst.Bytes()[1] == 0); i++ { // until the copy has begun
			runtime.Gosched()
		}
		require.NoError(t, pl.Close(pairtest.Context(t)))
		require.True(t, h.Done())
		for range 20 { // the memory is the program's again
			clear(dst.Bytes())
			require.Equal(t, side*side, bytes.Count(dst.Bytes(), []byte{0}), "the plan writes after Close")
		}
	}
}

// A plan whose moves have no elements runs as often as any other. The receiver may be late.
func TestAPlanOfNothing(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		_, _, sends, recvs := pairOf(t, all, heap, heap, 0)
		plans := planEverywhere(t, all, "nothing", sends, recvs)
		first := begin(t, plans[0], 1)
		require.False(t, first.Done(), "the receiver has not taken it")
		for version := uint64(1); version < 5; version++ {
			require.NoError(t, begin(t, plans[1], version).Wait(pairtest.Context(t)))
			require.NoError(t, first.Wait(pairtest.Context(t)))
			require.Equal(t, version, plans[1].Version())
			first = begin(t, plans[0], version+1)
		}
		require.NoError(t, begin(t, plans[1], 5).Wait(pairtest.Context(t)))
		require.NoError(t, first.Wait(pairtest.Context(t)))
	})
}

// The loss of a peer that has done its part of a run does not fail that run. After it, all other peers of the plan
// learn that there will be no other.
func TestALossAfterItsPartOfARun(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		plans := planChain(t, all)
		middle, last := begin(t, plans[1], 1), begin(t, plans[2], 1)
		require.NoError(t, last.Wait(pairtest.Context(t)))
		for plans[1].EdgesLeft() > 1 { // until it knows that as well
			_ = middle.WaitFor(0)
		}
		require.NoError(t, all[2].Transport.Abort())
		for plans[1].Err() == nil {
			_ = middle.WaitFor(0)
		}
		require.False(t, middle.Done(), "the rest of the run goes on")
		require.NoError(t, plans[0].Err())
		first := begin(t, plans[0], 1)
		require.NoError(t, first.Wait(pairtest.Context(t)))
		require.NoError(t, middle.Wait(pairtest.Context(t)))
		require.EqualValues(t, 1, plans[1].Version())
		for ctx := pairtest.Context(t); plans[0].Err() == nil; { // it does not name the peer that was lost
			_ = first.WaitFor(0)
			require.NoError(t, ctx.Err(), "it never learns")
		}
		require.ErrorIs(t, plans[0].Err(), stepvan.ErrRemote)
		for _, pl := range plans {
			require.NoError(t, pl.Close(pairtest.Context(t)))
		}
	})
}

// planChain makes a plan in which peer 0 sends to 1, and 1 to 2.
func planChain(t testing.TB, all []*pairtest.PeerOfCluster) []*peer.Plan {
	t.Helper()
	moves := func(p, other int) []peer.Move {
		v := filled(t, all[p], heap, 1000, uint64(p)).Strided()
		return []peer.Move{{ID: 1, Peer: stepvan.Rank(other), View: v}}
	}
	sends := [][]peer.Move{moves(0, 1), moves(1, 2), nil}
	recvs := [][]peer.Move{nil, moves(1, 0), moves(2, 1)}
	plans, errs := tryPlan(t, all, "chain", sends, recvs)
	require.NoError(t, errors.Join(errs...))
	return plans
}

// A peer may close a plan when it has done its part of a run. Another one that is lost afterwards is why the run fails.
func TestALossAfterAnotherPeerHasClosedThePlan(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		plans := planChain(t, all)
		middle, last := begin(t, plans[1], 1), begin(t, plans[2], 1)
		require.NoError(t, last.Wait(pairtest.Context(t)))
		closed := make(chan error, 1)
		go func() { closed <- plans[2].Close(pairtest.Context(t)) }()
		for plans[1].Err() == nil { // until it knows that no other run follows
			_ = middle.WaitFor(0)
		}
		require.False(t, middle.Done())
		require.NoError(t, all[0].Transport.Abort())
		require.ErrorContains(t, middle.Wait(pairtest.Context(t)), "peer 0")
		require.ErrorContains(t, plans[1].Err(), "peer 0")
		require.NoError(t, plans[1].Close(pairtest.Context(t)))
		require.NoError(t, <-closed)
	})
}

// A program may close a plan because it has lost a peer that the plan does not name. The others learn which one.
func TestAPlanIsClosedAfterALoss(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		_, _, sends, recvs := pairOf(t, all, heap, heap, 1000)
		plans := planEverywhere(t, all[:2], "weights", sends[:2], recvs[:2])
		require.NoError(t, all[0].Connect(pairtest.Context(t), 2))
		h, err := all[0].Recv(empty(t, all[0], heap, 8).Strided(), 2, 7)
		require.NoError(t, err)
		require.NoError(t, all[2].Transport.Abort())
		require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
		run := begin(t, plans[1], 0)
		require.NoError(t, plans[0].Err())
		closed := make(chan error, 1)
		go func() { closed <- plans[0].Close(pairtest.Context(t)) }()
		err = run.Wait(pairtest.Context(t))
		require.ErrorContains(t, err, "was closed")
		require.ErrorContains(t, err, "peer 2")
		require.NoError(t, plans[1].Close(pairtest.Context(t)))
		require.NoError(t, <-closed)

		plans = planEverywhere(t, all[:2], "made after the loss", sends[:2], recvs[:2])
		run = begin(t, plans[1], 0)
		go func() { closed <- plans[0].Close(pairtest.Context(t)) }()
		err = run.Wait(pairtest.Context(t))
		require.ErrorContains(t, err, "was closed")
		require.NotContains(t, err.Error(), "peer 2")
		require.NoError(t, plans[1].Close(pairtest.Context(t)))
		require.NoError(t, <-closed)
	})
}

// A peer that has agreed on a plan and gives it up before it knows that the others agree tells those to which it is a
// plan already. A receiver that waits for an offer would never learn it otherwise.
func TestAPeerGivesUpWhatIsAPlanToOthers(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	x, _ := l.agreed(false, 1000)
	h := begin(t, x.made, 0)
	x.letter(join([]byte{peer.LetterRejected}, u64(9, x.from+100), []byte{2}, []byte("no")))
	x.letter(join([]byte{peer.LetterRejected}, u64(1, x.from), []byte{6}, []byte("enough")))
	require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrRemote)
	require.ErrorContains(t, h.Err(), "enough")
	require.ErrorContains(t, h.Err(), "peer 2")
	require.ErrorIs(t, x.made.Err(), stepvan.ErrRemote)
	require.EqualValues(t, 44, l.take(peer.OpFail).Header.Request)
	require.NoError(t, l.tell(lie{op: peer.OpQuiet, request: l.edge}))
	require.NoError(t, x.made.Close(pairtest.Context(t)))
}

// Connections that are lost while plans are made and run fail these plans at both ends, or do nothing to them. What is
// agreed on over one connection is never used over another: all elements are right.
func TestConnectionsLostWhilePlansAreMade(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		wait.Go(func() {
			r := rand.New(rand.NewPCG(3, 4))
			for ctx.Err() == nil {
				for range r.IntN(2000) {
					_ = all[0].Rank()
				}
				for _, s := range all[r.IntN(2)].Transport.Sessions() {
					s.Drop(stepvan.ErrPeerLost)
				}
			}
		})
		defer wait.Wait()
		defer cancel()
		const rounds = 40
		made, ran := 0, 0
		x := newExchange(t, all, 64, 300, shared, heap)
		for round := range rounds {
			for _, dst := range x.dsts {
				clear(dst.Bytes())
			}
			short, end := context.WithTimeout(ctx, pairtest.WaitLimit)
			var g errgroup.Group
			results := make([]error, 2)
			plans := make([]*peer.Plan, 2)
			for i, p := range all {
				g.Go(func() error {
					pl, err := p.Plan(short, "weights", x.sends[i], x.recvs[i])
					if err != nil {
						require.NotErrorIs(t, err, context.DeadlineExceeded, "round %d: it hangs", round)
						return nil //nolint:nilerr // that is what is tested
					}
					plans[i] = pl
					h, err := pl.Begin(uint64(round + 1))
					if err == nil {
						err = h.Wait(short)
					}
					require.NotErrorIs(t, err, context.DeadlineExceeded, "round %d: it hangs", round)
					results[i] = err
					return nil
				})
			}
			_ = g.Wait()
			for i, pl := range plans {
				if pl == nil {
					continue
				}
				made++
				if results[i] == nil {
					require.EqualValues(t, round+1, pl.Version())
					x.checkOne(t, i)
					ran++
				} else {
					require.Zero(t, pl.Version())
				}
				require.NoError(t, pl.Close(short))
			}
			end()
		}
		t.Logf("%d of %d plans were made, and %d ran", made, 2*rounds, ran)
	})
}

// A peer gives up plans at any moment and makes them anew under the same name. The others do so as well when they hear
// of it. Nobody waits for what belongs to an attempt that is over, and all meet in the end.
func TestAPlanIsGivenUpAndRetriedAtOnce(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		const size, rounds = 3, 20
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, size)
		x := newExchange(t, all, 16, 30, heap, heap)
		r := rand.New(rand.NewPCG(5, 6))
		for round := range rounds {
			try := func(ctx context.Context, i int) error {
				pl, err := all[i].Plan(ctx, "weights", x.sends[i], x.recvs[i])
				if err != nil {
					return err
				}
				h, err := pl.Begin(uint64(round + 1))
				if err == nil {
					err = h.Wait(pairtest.Context(t))
				}
				return errors.Join(err, pl.Close(pairtest.Context(t)))
			}
			var g errgroup.Group
			looks := make([]int, r.IntN(4)) // how long the first peer waits, attempt by attempt
			for i := range looks {
				looks[i] = r.IntN(4000)
			}
			g.Go(func() error {
				for _, n := range looks {
					ctx, cancel := context.WithCancel(pairtest.Context(t))
					go func() {
						for range n {
							_ = all[0].Rank()
						}
						cancel()
					}()
					if try(ctx, 0) == nil {
						return nil
					}
				}
				return repeatedly(t, 0, try)
			})
			for i := 1; i < size; i++ {
				g.Go(func() error { return repeatedly(t, i, try) })
			}
			require.NoError(t, g.Wait(), "round %d", round)
			x.check(t)
		}
	})
}

// repeatedly tries until no other peer has given up.
func repeatedly(t testing.TB, i int, try func(context.Context, int) error) (err error) {
	for again := true; again; again = errors.Is(err, stepvan.ErrRemote) {
		err = try(pairtest.Context(t), i)
	}
	return err
}
