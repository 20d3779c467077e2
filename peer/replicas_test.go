package peer_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/peer/peertest"
	"github.com/stepvan/stepvan/tensor"
)

// broadcast is a plan in which peer 0 sends one view to all others.
type broadcast struct {
	src          *tensor.Tensor
	dsts         []*tensor.Tensor // of the others
	sends, recvs [][]peer.Move
}

func newBroadcast(t testing.TB, all []*pairtest.PeerOfCluster, bytes int64) *broadcast {
	x := &broadcast{src: filled(t, all[0], heap, bytes, 1), sends: make([][]peer.Move, len(all)), recvs: make([][]peer.Move, len(all))}
	for i := range all[1:] {
		dst := empty(t, all[i+1], heap, bytes)
		x.dsts = append(x.dsts, dst)
		x.sends[0] = append(x.sends[0], peer.Move{ID: uint64(i), Peer: stepvan.Rank(i + 1), View: x.src.Strided(), Label: "weight"})
		x.recvs[i+1] = []peer.Move{{ID: uint64(i), Peer: 0, View: dst.Strided(), Label: "weight"}}
	}
	return x
}

// tryPlanWith has all peers make a plan with the options of each.
func tryPlanWith(t testing.TB, all []*pairtest.PeerOfCluster, sends, recvs [][]peer.Move, options func(i int) peer.PlanOptions) ([]*peer.Plan, []error) {
	plans, errs := make([]*peer.Plan, len(all)), make([]error, len(all))
	var g errgroup.Group
	for i, p := range all {
		g.Go(func() error {
			plans[i], errs[i] = p.PlanWith(pairtest.Context(t), "weights", sends[i], recvs[i], options(i))
			return nil
		})
	}
	_ = g.Wait()
	return plans, errs
}

func planReplicas(t testing.TB, all []*pairtest.PeerOfCluster, sends, recvs [][]peer.Move, on bool) []*peer.Plan {
	t.Helper()
	plans, errs := tryPlanWith(t, all, sends, recvs, func(int) peer.PlanOptions { return peer.PlanOptions{Replicas: on} })
	for i, err := range errs {
		require.NoError(t, err, "peer %d", i)
	}
	return plans
}

// The source sends one copy of replicas, and without the option one to each receiver.
func TestReplicasOverTCP(t *testing.T) {
	const bytes, receivers = 5<<20 + 7, 4
	for _, on := range []bool{false, true} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			v, traffic := pairtest.Watch(pairtest.TCP())
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, receivers+1)
			for _, p := range all[1:] { // so that all of them have dialled the source, whose address then names it
				require.NoError(t, p.Connect(pairtest.Context(t), 0))
			}
			x := newBroadcast(t, all, bytes)
			plans := planReplicas(t, all, x.sends, x.recvs, on)
			source := strings.TrimPrefix(all[0].Service.Addr, "tcp://")
			before, total := traffic.From(source), traffic.Bytes.Load()
			runEverywhere(t, plans, 1)
			copies := int64(receivers)
			if on {
				copies = 1
			}
			require.Equal(t, copies*bytes, traffic.From(source)-before)
			require.EqualValues(t, receivers*bytes, traffic.Bytes.Load()-total)
			for i, dst := range x.dsts {
				require.Equal(t, x.src.Bytes(), dst.Bytes(), "at peer %d", i+1)
			}
			require.Equal(t, copies*bytes, plans[0].Stats().Sent)
			passed := int64(0)
			if on {
				passed = bytes
			}
			for i, pl := range plans[1:] {
				s := pl.Stats()
				want := passed
				if i == receivers-1 {
					want = 0
				}
				require.Equal(t, want, s.Passed, "peer %d", i+1)
				require.Equal(t, want, s.Sent, "peer %d", i+1)
				require.EqualValues(t, bytes, s.Received)
			}
			closeAll(t, plans)
		})
	}
}

// Elements that the source converts are passed on as they came. Those that a receiver converts, and those that it
// merges, travel in the ordinary way.
func TestReplicasThatChangeOnTheirWay(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 4)
	const n = 1_000_001
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i % 200) // which bfloat16 has as it is
	}
	src, err := tensor.FromSlice(values)
	require.NoError(t, err)
	sends, recvs := make([][]peer.Move, 4), make([][]peer.Move, 4)
	var narrow, wide, sums [3]tensor.Strided
	for i := range 3 {
		half, err := tensor.FromBytes(tensor.BFloat16, tensor.ShapeOf(n), make([]byte, 2*n))
		require.NoError(t, err)
		other, err := tensor.FromBytes(tensor.Float64, tensor.ShapeOf(n), make([]byte, 8*n))
		require.NoError(t, err)
		sum, err := tensor.FromBytes(tensor.Float32, tensor.ShapeOf(n), make([]byte, 4*n))
		require.NoError(t, err)
		narrow[i], wide[i], sums[i] = half.Strided(), other.Strided(), sum.Strided()
		for id, m := range []peer.Move{
			{View: narrow[i], Wire: tensor.BFloat16},
			{View: wide[i], Wire: tensor.Float32},
			{View: sums[i], Merge: peer.Sum},
		} {
			m.ID, m.Peer = uint64(id), 0
			recvs[i+1] = append(recvs[i+1], m)
			m.Peer, m.View, m.Merge = stepvan.Rank(i+1), src.Strided(), peer.Overwrite
			sends[0] = append(sends[0], m)
		}
	}
	plans := planReplicas(t, all, sends, recvs, true)
	runEverywhere(t, plans, 1)
	require.EqualValues(t, 2*n+3*4*n+3*4*n, plans[0].Stats().Sent)
	for i := range 3 {
		a, b, c := narrow[i].Memory(), wide[i].Memory(), sums[i].Memory()
		for k, v := range values {
			if got := binary.LittleEndian.Uint16(a.Bytes()[2*k:]); got != uint16(math.Float32bits(v)>>16) {
				t.Fatalf("element %d is %#x, want %v", k, got, v)
			}
			if got := doubleAt(b.Bytes(), k); got != float64(v) {
				t.Fatalf("element %d is %v, want %v", k, got, v)
			}
		}
		require.True(t, slices.Equal(src.Bytes(), c.Bytes()))
	}
	closeAll(t, plans)
}

func TestPlanOptionsThatDiffer(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 3)
	x := newBroadcast(t, all, 100)
	_, errs := tryPlanWith(t, all, x.sends, x.recvs, func(i int) peer.PlanOptions { return peer.PlanOptions{Replicas: i != 1} })
	for i, other := range map[int]string{0: "peer 1", 1: "peer 0"} {
		var m *peer.MismatchError
		require.ErrorAs(t, errs[i], &m)
		require.ErrorContains(t, errs[i], other)
		require.ErrorContains(t, errs[i], "Replicas true")
		require.ErrorContains(t, errs[i], "Replicas false")
	}
	require.ErrorIs(t, errs[2], stepvan.ErrRemote)
	plans := planReplicas(t, all, x.sends, x.recvs, true) // the name can be used again
	runEverywhere(t, plans, 1)
	require.Equal(t, x.src.Bytes(), x.dsts[1].Bytes())
	closeAll(t, plans)
}

// A receiver that is slow to begin holds the memory of nobody but that of the plan: what comes before it waits in its
// destination.
func TestASlowReceiverOfAChain(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 4)
	x := newBroadcast(t, all, 8<<20)
	plans := planReplicas(t, all, x.sends, x.recvs, true)
	source, first, second := begin(t, plans[0], 1), begin(t, plans[1], 1), begin(t, plans[2], 1)
	require.NoError(t, source.Wait(pairtest.Context(t)))
	require.NoError(t, first.Wait(pairtest.Context(t)))
	require.False(t, second.Done(), "it has not passed on")
	require.Zero(t, plans[2].Version())
	for i, p := range all {
		require.Less(t, p.Memory.Stats().UsedBytes, int64(1<<20), "pooled memory of peer %d", i)
	}
	require.NoError(t, begin(t, plans[3], 0).Wait(pairtest.Context(t)))
	require.NoError(t, second.Wait(pairtest.Context(t)))
	require.Equal(t, x.src.Bytes(), x.dsts[2].Bytes())
	closeAll(t, plans)
}

// Each peer of a chain learns the death of the one in the middle, and serves nothing that is not whole.
func TestADeathInTheMiddleOfAChain(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 5)
	x := newBroadcast(t, all, 8<<20)
	plans := planReplicas(t, all, x.sends, x.recvs, true)
	runEverywhere(t, plans, 1)
	held := peer.HoldMovers(all[1].Peer) // peer 1 passes nothing on
	var handles []peer.Handle
	for _, pl := range plans {
		handles = append(handles, begin(t, pl, 2))
	}
	require.NoError(t, handles[0].Wait(pairtest.Context(t)), "peer 1 has everything")
	died := time.Now()
	require.NoError(t, all[2].Transport.Abort())
	held()
	for _, i := range []int{1, 3, 4} {
		err := handles[i].Wait(pairtest.Context(t))
		require.ErrorContains(t, err, "peer 2", "at peer %d", i)
		require.Less(t, time.Since(died), 2*time.Second)
		require.Zero(t, plans[i].Version())
	}
	until(t, all[:2], func() bool { return plans[0].Err() != nil })
	_, err := plans[0].Begin(3)
	require.ErrorContains(t, err, "peer 2")
	closeAll(t, plans)
}

// early is a mutant that passes chunks on before they have landed. Its source sends nothing before the last receiver of
// a chain has all.
type early struct {
	peertest.Peer
	last bool
	done chan struct{}
	once *sync.Once
}

func (p early) PlanWith(ctx context.Context, name string, sends, recvs []peer.Move, o peer.PlanOptions) (peertest.Plan, error) {
	pl, err := p.Peer.PlanWith(ctx, name, sends, recvs, o)
	if err != nil {
		return nil, err
	}
	mutant := pl.(interface {
		PassEarly()
		HoldMovers() (release func())
	})
	mutant.PassEarly()
	if len(sends) > 0 && len(recvs) == 0 {
		release := mutant.HoldMovers()
		go func() {
			select {
			case <-p.done:
			case <-ctx.Done():
			}
			release()
		}()
	}
	return earlyPlan{pl, p}, nil
}

type earlyPlan struct {
	peertest.Plan
	p early
}

func (pl earlyPlan) Begin(version uint64) (peertest.Handle, error) {
	h, err := pl.Plan.Begin(version)
	return earlyHandle{h, pl}, err
}

type earlyHandle struct {
	peertest.Handle
	plan earlyPlan
}

func (h earlyHandle) Wait(ctx context.Context) error {
	err := h.Handle.Wait(ctx)
	if err == nil && h.plan.p.last && h.plan.Stats().Passed == 0 && h.plan.Stats().Received > 0 {
		h.plan.p.once.Do(func() { close(h.plan.p.done) })
	}
	return err
}

func TestChunksThatArePassedOnEarlyAreFound(t *testing.T) {
	if race.Enabled {
		t.Skip("the fault is a race, for which the detector would fail the test")
	}
	all := peertest.Cases()
	c := all[slices.IndexFunc(all, func(c peertest.Case) bool { return c.Name == "death in a chain" })]
	done, once := make(chan struct{}), new(sync.Once)
	found := peertest.Check(t, pairtest.TCP(), c, func(p peertest.Peer) peertest.Peer { return early{p, true, done, once} })
	require.Contains(t, found, "is not whole")
}

// A source that lies about a chain is expelled, and its receiver stays as it is.
func TestHostileChains(t *testing.T) {
	send := []peer.RawMove{{ID: 4, DType: tensor.Uint8, Shape: tensor.ShapeOf(6)}}
	two := []peer.RawMove{send[0], {ID: 5, DType: tensor.Uint8, Shape: tensor.ShapeOf(0)}}
	list := func(places ...[]byte) []byte {
		return slices.Concat(append([][]byte{{byte(len(places))}}, places...)...)
	}
	for _, c := range []struct {
		name   string
		chains []byte
		want   string
	}{
		{"a move that it does not bring", list(peer.Place(0, 1, nil, 7)), "move 7"},
		{"a move twice", list(peer.Place(0, 1, nil, 4, 4)), "move 4"},
		{"a move in two chains", list(peer.Place(0, 1, nil, 4), peer.Place(1, 1, nil, 4)), "move 4"},
		{"a move without elements", list(peer.Place(0, 1, nil, 5)), "move 5"},
		{"the same chain twice", list(peer.Place(3, 1, nil, 4), peer.Place(3, 1, nil, 4)), "comes behind chain 3"},
		{"no move", list(peer.Place(0, 1, nil)), "0 moves"},
		{"the receiver itself", list(peer.Place(0, 0, nil, 4)), "peer 0"},
		{"a peer that does not exist", list(peer.Place(0, 99, nil, 4)), "peer 99"},
		{"a negative rank", list(peer.Place(0, -1, nil, 4)), "peer -1"},
		{"a circle", list(peer.Place(0, 2, []stepvan.Rank{2}, 4)), "peer 2 is in a chain twice"},
		{"back to the source", list(peer.Place(0, 2, []stepvan.Rank{1}, 4)), "peer 1 is in a chain twice"},
		{"more chains than bytes", []byte{200, 1}, "200 chains"},
		{"cut off", list(peer.Place(0, 1, nil, 4)[:20]), "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 3)
			require.NoError(t, all[1].Connect(pairtest.Context(t), 0))
			peer.Propose(all[1].Peer, 0, "w", peer.ProposalWith(two, nil, 1))
			peer.Propose(all[1].Peer, 0, "w", peer.Letter(peer.LetterPaired, nil))
			peer.Propose(all[1].Peer, 0, "w", peer.Letter(peer.LetterChains, c.chains))
			var recvs []peer.Move
			for _, m := range two {
				recvs = append(recvs, peer.Move{ID: m.ID, Peer: 1, View: empty(t, all[0], heap, m.Shape.Dims()[0]).Strided()})
			}
			_, err := all[0].PlanWith(pairtest.Context(t), "w", nil, recvs, peer.PlanOptions{Replicas: true})
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			require.ErrorContains(t, err, "peer 1")
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A peer may send chunks and offers only as the plan says.
func TestHostileNeighbors(t *testing.T) {
	version := func(edge, version uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, edge), version)
	}
	for _, c := range []struct {
		name   string
		op     uint8
		meta   []byte
		edge   int // of the victim, peer 1: what it receives, and what it passes on
		from   int
		victim string
	}{
		{"ready before an offer", peer.OpReady, version(1, 1), 1, 2, "which it was not offered"},
		{"ready for version 0", peer.OpReady, version(1, 0), 1, 2, "which it was not offered"},
		{"an offer by the receiver", peer.OpOpen, version(1, 1), 1, 2, "before the last one was taken"},
		{"done before the run", peer.OpDone, nil, 1, 2, "does not fit the state"},
		{"another's edge", peer.OpOpen, version(1, 1), 0, 2, "which it does not have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.TCP()}, 3)
			x := newBroadcast(t, all, 100_000)
			plans := planReplicas(t, all, x.sends, x.recvs, true)
			edges := peer.EdgesOf(plans[1])
			require.Len(t, edges, 2)
			peer.SendRaw(all[c.from].Peer, 1, c.op, edges[c.edge], c.meta, nil)
			until(t, all, func() bool { return plans[1].Err() != nil })
			require.ErrorContains(t, plans[1].Err(), c.victim)
			require.ErrorContains(t, plans[1].Err(), fmt.Sprint("peer ", c.from))
			until(t, all, func() bool { return plans[0].Err() != nil && plans[2].Err() != nil })
			closeAll(t, plans)
			require.Equal(t, make([]byte, 100_000), x.dsts[0].Bytes(), "nothing was written")
		})
	}
}

// Letters about chains are read to their end or refused.
func FuzzChains(f *testing.F) {
	f.Add(peer.Letter(peer.LetterChains, []byte{0}))
	f.Add(peer.Letter(peer.LetterChains, append([]byte{1}, peer.Place(0, 1, []stepvan.Rank{2, 3}, 4, 5)...)))
	f.Add(peer.Letter(peer.LetterHops, []byte{0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := peer.ReadPlaces(b); err == nil && n > len(b) {
			t.Fatalf("%d places in %d bytes", n, len(b))
		}
		if n, err := peer.ReadHops(b); err == nil && n > len(b) {
			t.Fatalf("%d hops in %d bytes", n, len(b))
		}
	})
}

func doubleAt(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
}
