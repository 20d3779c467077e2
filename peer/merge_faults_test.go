package peer_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// until drives the peers until cond is true.
func until(t testing.TB, all []*pairtest.PeerOfCluster, cond func() bool) {
	t.Helper()
	ctx := pairtest.Context(t)
	for !cond() {
		require.NoError(t, ctx.Err(), "it never happened")
		for _, p := range all {
			_ = p.Handle(0).WaitFor(0)
		}
		runtime.Gosched()
	}
}

// sumOf is a plan that sums a large view of each peer at peer 0.
func sumOf(t testing.TB, all []*pairtest.PeerOfCluster, where memory, elements int64) *mergeCase {
	r := rand.New(rand.NewPCG(11, 12))
	dst := dense(t, all[0], where, tensor.Float32, elements)
	types := [3]tensor.DType{tensor.Float32, tensor.Float32, tensor.Float32}
	return newMerge(t, all, r, types, peer.Sum, nil, dst, func(i int, d tensor.DType) tensor.Strided {
		return dense(t, all[i], where, d, elements)
	})
}

func TestADeathInTheMiddleOfAMerge(t *testing.T) {
	for _, where := range []memory{heap, shared} {
		eachVan(t, func(t *testing.T, v pairtest.Van) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 4)
			three := all[:3]
			m := sumOf(t, three, where, 300_000)
			plans, errs := tryPlan(t, three, "sum", m.sends, m.recvs)
			for _, err := range errs {
				require.NoError(t, err)
			}
			runEverywhere(t, plans, 1)
			pulls := plans[0].Stats().Streamed > 0
			slow := all[2] // the peer that stops in the middle
			if !pulls {
				slow = all[0]
			}
			release := peer.HoldMovers(slow.Peer)
			var handles []peer.Handle
			for _, pl := range plans {
				h, err := pl.Begin(2)
				require.NoError(t, err)
				handles = append(handles, h)
			}
			if pulls {
				until(t, three, func() bool { return peer.PiecesOf(plans[0]) == 4 }) // two of peer 2 for each of two units
			}
			require.False(t, handles[0].Done())
			require.Zero(t, plans[0].Version())
			require.NoError(t, all[2].Transport.Abort())
			if pulls {
				release()
			}
			require.ErrorIs(t, handles[0].Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
			require.ErrorContains(t, handles[0].Err(), "peer 2")
			require.Zero(t, plans[0].Version(), "half a merge is no version")
			if !pulls {
				release()
			}
			require.Error(t, handles[1].Wait(pairtest.Context(t)))
			for _, pl := range plans {
				require.NoError(t, pl.Close(pairtest.Context(t)))
			}
			again := sumOf(t, all[:2], where, 300_000)
			next := planEverywhere(t, all[:2], "sum", again.sends, again.recvs)
			runEverywhere(t, next, 3)
			require.Equal(t, again.want(t), contents(t, again.dst))
		})
	}
}

func TestAMergeDoesNotAllocate(t *testing.T) {
	for _, v := range []pairtest.Van{pairtest.Shm(), pairtest.Mem()} {
		t.Run(v.Name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
			r := rand.New(rand.NewPCG(1, 1))
			dst := dense(t, all[0], shared, tensor.BFloat16, 10, 100)
			m := newMerge(t, all, r, [3]tensor.DType{tensor.Float32, tensor.BFloat16, tensor.BFloat16}, peer.Avg, nil, dst, func(i int, d tensor.DType) tensor.Strided {
				return dense(t, all[i], shared, d, 10, 100)
			})
			plans := planEverywhere(t, all, "sum", m.sends, m.recvs)
			version := uint64(0)
			run := func() {
				version++
				a, err := plans[0].Begin(version)
				require.NoError(t, err)
				b, err := plans[1].Begin(version)
				require.NoError(t, err)
				require.NoError(t, a.WaitFor(-1))
				require.NoError(t, b.WaitFor(-1))
			}
			for range 100 {
				run()
			}
			if pairtest.Race {
				t.Skip("the race detector allocates")
			}
			require.Zero(t, testing.AllocsPerRun(100, run))
			require.Equal(t, m.want(t), contents(t, dst))
		})
	}
}

// counted is a van that counts the messages between peers.
type counted struct {
	van.Van
	messages *atomic.Int64
}

func (c counted) Poll(events []van.Event, all bool) int {
	n := c.Van.Poll(events, all)
	for _, e := range events[:n] {
		if e.Kind == van.EventMessage && (e.Delivery.Header.Channel == link.ChannelPeer || e.Delivery.Header.Channel == link.ChannelPeerBulk) {
			c.messages.Add(1)
		}
	}
	return n
}

func TestTwoMessagesAPair(t *testing.T) {
	var messages atomic.Int64
	v := pairtest.OneSided()
	maker := v.Maker
	v.Maker = func(instance string, memory *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			inner, err := maker(instance, memory)(p, wake)
			return counted{inner, &messages}, err
		}
	}
	all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
	m := sumOf(t, all, shared, 1000)
	for i := range 50 { // and receives of their own, some of them converted
		for k := 1; k < 3; k++ {
			from := dense(t, all[k], shared, tensor.Float32, 20)
			to := dense(t, all[0], shared, []tensor.DType{tensor.Float32, tensor.BFloat16}[i%2], 20)
			m.sends[k] = append(m.sends[k], peer.Move{ID: uint64(100 + i), View: from, Wire: to.DType()})
			m.recvs[0] = append(m.recvs[0], peer.Move{ID: uint64(100 + i), Peer: stepvan.Rank(k), View: to, Wire: to.DType()})
		}
	}
	plans := planEverywhere(t, all, "sum", m.sends, m.recvs)
	for version := range uint64(5) {
		before := messages.Load()
		runEverywhere(t, plans, version+1)
		require.Equal(t, int64(4), messages.Load()-before, "of two pairs")
	}
	require.Equal(t, m.want(t), contents(t, m.dst))
}

func TestHostileProposals(t *testing.T) {
	view := func(d tensor.DType) tensor.Strided { return like(t, d, tensor.ShapeOf(6)) }
	for _, c := range []struct {
		name         string
		sends, recvs []peer.RawMove
		mine         peer.Move
		want         string
	}{
		{"no such type", []peer.RawMove{{ID: 1, Wire: 99, DType: tensor.Float32, Shape: tensor.ShapeOf(6)}}, nil,
			peer.Move{ID: 1, View: view(tensor.Float32)}, "travels as type 99"},
		{"no such merge", []peer.RawMove{{ID: 1, Merge: 9, DType: tensor.Float32, Shape: tensor.ShapeOf(6)}}, nil,
			peer.Move{ID: 1, View: view(tensor.Float32)}, "has merge 9"},
		{"a send that merges", []peer.RawMove{{ID: 1, Merge: 1, DType: tensor.Float32, Shape: tensor.ShapeOf(6)}}, nil,
			peer.Move{ID: 1, View: view(tensor.Float32)}, "a send has none"},
		{"another type on the way", []peer.RawMove{{ID: 1, Wire: byte(tensor.BFloat16), DType: tensor.BFloat16, Shape: tensor.ShapeOf(6)}}, nil,
			peer.Move{ID: 1, View: view(tensor.Float32), Wire: tensor.Float32}, "with Wire bfloat16"},
		{"too few", []peer.RawMove{{ID: 1, Wire: byte(tensor.Float32), DType: tensor.BFloat16, Shape: tensor.ShapeOf(5)}}, nil,
			peer.Move{ID: 1, View: view(tensor.Float32), Wire: tensor.Float32}, "bfloat16[5]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{}, 2)
			require.NoError(t, all[1].Connect(pairtest.Context(t), 0))
			peer.Propose(all[1].Peer, 0, "w", peer.ProposalOf(c.sends, c.recvs))
			peer.Propose(all[1].Peer, 0, "w", peer.Letter(peer.LetterPaired, nil))
			c.mine.Peer = 1
			_, err := all[0].Plan(pairtest.Context(t), "w", nil, []peer.Move{c.mine})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A peer that keeps to a plan first, and not in a run of it.
func TestHostilePieces(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) (release func())
		victim int
		want   string
	}{
		{"a piece that nobody has asked for", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			peer.SendRaw(all[1].Peer, 0, peer.OpPiece, peer.EdgesOf(plans[0])[0], nil, make([]byte, 100))
			until(t, all, func() bool { return len(all[0].Transport.Sessions()) == 0 })
			return func() {}
		}, 0, "nobody has asked for"},
		{"elements behind the last one", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			peer.SendRaw(all[0].Peer, 1, peer.OpPull, peer.EdgesOf(plans[1])[0], peer.Pull(0, 100_000, 100_001), nil)
			return func() {}
		}, 1, "pulls elements 100000 to 100001 of 100000"},
		{"elements before the first one", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			peer.SendRaw(all[0].Peer, 1, peer.OpPull, peer.EdgesOf(plans[1])[0], peer.Pull(0, -5, 1), nil)
			return func() {}
		}, 1, "pulls elements -5"},
		{"another move", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			peer.SendRaw(all[0].Peer, 1, peer.OpPull, peer.EdgesOf(plans[1])[0], peer.Pull(2, 0, 1), nil)
			return func() {}
		}, 1, "pulls move 2"},
		{"too many", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			release := peer.HoldMovers(all[1].Peer)
			for range 10 {
				peer.SendRaw(all[0].Peer, 1, peer.OpPull, peer.EdgesOf(plans[1])[0], peer.Pull(0, 0, 1), nil)
			}
			return release
		}, 1, "more than 4 questions"},
		{"a question that is cut off", func(all []*pairtest.PeerOfCluster, plans []*peer.Plan) func() {
			peer.SendRaw(all[0].Peer, 1, peer.OpPull, peer.EdgesOf(plans[1])[0], []byte{1, 2}, nil)
			return func() {}
		}, 1, "cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{}, 2)
			m := sumOf(t, all, heap, 100_000)
			plans, errs := tryPlan(t, all, "sum", m.sends, m.recvs)
			for _, err := range errs {
				require.NoError(t, err)
			}
			h, err := plans[1].Begin(1)
			require.NoError(t, err)
			release := c.attack(all, plans)
			if c.victim == 0 {
				if h, err = plans[0].Begin(1); err == nil {
					err = h.Wait(pairtest.Context(t))
				}
			} else {
				err = h.Wait(pairtest.Context(t))
			}
			release()
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.ErrorContains(t, err, c.want)
			for _, pl := range plans {
				require.Zero(t, pl.Version())
				require.NoError(t, pl.Close(pairtest.Context(t)))
			}
		})
	}
}

func FuzzProposal(f *testing.F) {
	shape := tensor.ShapeOf(2, 3)
	f.Add(peer.ProposalOf(nil, nil))
	f.Add(peer.ProposalOf([]peer.RawMove{{ID: 1, Wire: byte(tensor.BFloat16), DType: tensor.Float32, Shape: shape}}, []peer.RawMove{{ID: 2, Merge: byte(peer.Avg), DType: tensor.Float32, Shape: shape}}))
	f.Add(peer.ProposalOf([]peer.RawMove{{ID: 1, Wire: 99, DType: tensor.Float32, Shape: shape}}, nil))
	f.Add(peer.ProposalOf(nil, []peer.RawMove{{ID: 1, Merge: 6, DType: tensor.Float32, Shape: shape}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := peer.ReadProposal(b); err == nil && n > len(b) {
			t.Fatalf("%d moves in %d bytes", n, len(b))
		}
	})
}
