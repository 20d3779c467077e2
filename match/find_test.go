package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// world are peers with tensors of int32, of which each element is its place in the whole.
type world struct {
	t      testing.TB
	ranks  []stepvan.Rank
	states []State
	views  [][2][]tensor.Strided // by peer, sent and received
}

func newWorld(t testing.TB, ranks ...stepvan.Rank) *world {
	return &world{t: t, ranks: ranks, states: make([]State, len(ranks)), views: make([][2][]tensor.Strided, len(ranks))}
}

// add gives a peer a part of a tensor.
func (w *world) add(side, member int, name string, part layout.Part) {
	list := &w.states[member].Sends
	if side == receiving {
		list = &w.states[member].Receives
	}
	*list = append(*list, Tensor{name, tensor.Int32, part})
	data := make([]int32, part.Elems())
	for i := range data {
		data[i] = -1
		if side == sending {
			data[i] = place(&part, i)
		}
	}
	flat, err := tensor.FromSlice(data)
	require.NoError(w.t, err)
	shaped, err := flat.View(part.Local())
	require.NoError(w.t, err)
	w.views[member][side] = append(w.views[member][side], shaped.Strided())
}

// place is where element i of a part lies in the whole, counted in row-major order.
func place(p *layout.Part, i int) int32 {
	var index [tensor.MaxRank]int64
	rest := int64(i)
	for d := p.Shape().Rank() - 1; d >= 0; d-- {
		index[d] = rest % p.Local().Dim(d)
		rest /= p.Local().Dim(d)
	}
	at := int64(0)
	for d := range p.Shape().Rank() {
		for _, s := range p.Spans(d) {
			if s.Local <= index[d] && index[d] < s.Local+s.Stop-s.Start {
				at = at*p.Shape().Dim(d) + s.Start + index[d] - s.Local
				break
			}
		}
	}
	return int32(at)
}

func (w *world) describe() (all [][]byte) {
	for i := range w.states {
		b, err := w.states[i].Append(nil)
		require.NoError(w.t, err)
		all = append(all, b)
	}
	return all
}

// wire is a move on its way.
type wire struct {
	from, to stepvan.Rank
	id       uint64
}

// run finds the moves of all peers, makes them, and checks what has come. It returns how many elements travelled.
func (w *world) run() (travelled int64) {
	described := w.describe()
	sent, received := map[wire]tensor.Strided{}, map[wire]tensor.Strided{}
	for own, rank := range w.ranks {
		moves, err := Find(w.ranks, described, own)
		require.NoError(w.t, err)
		for i := range moves.Sends {
			m := &moves.Sends[i]
			v, err := m.Narrow(w.views[own][sending][m.Tensor])
			require.NoError(w.t, err)
			sent[wire{rank, m.Peer, m.ID}] = v
		}
		for i := range moves.Receives {
			m := &moves.Receives[i]
			v, err := m.Narrow(w.views[own][receiving][m.Tensor])
			require.NoError(w.t, err)
			received[wire{m.Peer, rank, m.ID}] = v
			travelled += v.Len() / 4
		}
	}
	require.Len(w.t, sent, len(received))
	for at, to := range received {
		from, ok := sent[at]
		require.True(w.t, ok, at)
		require.NoError(w.t, to.CopyFrom(&from))
	}
	for member := range w.states {
		for i := range w.states[member].Receives {
			part := &w.states[member].Receives[i].Part
			memory := w.views[member][receiving][i].Memory()
			got, err := tensor.As[int32](memory)
			require.NoError(w.t, err)
			for k, value := range got {
				require.Equal(w.t, place(part, k), value)
			}
		}
	}
	return travelled
}

func part(t testing.TB, shape tensor.Shape, index int, placements ...layout.Placement) layout.Part {
	dims := make([]int, len(placements))
	for i := range dims {
		dims[i] = 2
	}
	p, err := layout.Layout{Mesh: layout.MeshOf(dims...), Placements: placements}.Part(shape, index)
	require.NoError(t, err)
	return p
}

func shard(dim int) layout.Placement { return layout.Placement{Kind: layout.Sharded, Dim: dim} }

func whole(t testing.TB, dims ...int64) layout.Part {
	p, err := layout.Whole(tensor.ShapeOf(dims...))
	require.NoError(t, err)
	return p
}

func TestTrainersToInference(t *testing.T) {
	w := newWorld(t, 0, 1, 5, 3)
	for i := range 2 {
		for _, name := range []string{"a", "b"} { // cut by rows, and received by columns
			w.add(sending, i, name, part(t, tensor.ShapeOf(5, 6), i, shard(0)))
			w.add(receiving, 2+i, name, part(t, tensor.ShapeOf(5, 6), i, shard(1)))
		}
		w.add(sending, i, "norm", whole(t, 7))
		w.add(receiving, 2+i, "norm", whole(t, 7))
		w.add(sending, i, "scale", whole(t))
		w.add(receiving, 2+i, "scale", whole(t))
		w.add(sending, i, "unused", whole(t, 3))
		w.add(receiving, 2+i, "empty", whole(t, 0, 4))
	}
	w.add(sending, 1, "empty", whole(t, 0, 4))
	require.EqualValues(t, 2*30+2*7+2, w.run())

	moves, err := Find(w.ranks, w.describe(), 3)
	require.NoError(t, err)
	var norm []stepvan.Rank
	for i := range moves.Receives {
		if m := &moves.Receives[i]; m.Tensor == 2 {
			norm = append(norm, m.Peer)
		}
	}
	require.Equal(t, []stepvan.Rank{1}, norm, "the second receiver begins with the second copy")
}

// A peer that has what it receives takes it from itself.
func TestSendersThatReceive(t *testing.T) {
	w := newWorld(t, 0, 1)
	for i := range 2 {
		w.add(sending, i, "w", part(t, tensor.ShapeOf(8), i, shard(0)))
		w.add(receiving, i, "w", whole(t, 8))
	}
	w.run()
	moves, err := Find(w.ranks, w.describe(), 0)
	require.NoError(t, err)
	require.Len(t, moves.Receives, 2)
	require.EqualValues(t, 0, moves.Receives[0].Peer)
	require.EqualValues(t, 1, moves.Receives[1].Peer)
	require.Len(t, moves.Sends, 2)
}

func TestRandomStates(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		peers := 1 + r.IntN(6)
		ranks := make([]stepvan.Rank, peers)
		for i, n := range r.Perm(20)[:peers] {
			ranks[i] = stepvan.Rank(n)
		}
		w := newWorld(t, ranks...)
		for n := range 1 + r.IntN(6) {
			w.addRandom(r, fmt.Sprintf("layer.%d", n))
		}
		w.run()
	}
}

// addRandom gives some peers parts of a tensor, so that the senders have all of it.
func (w *world) addRandom(r *rand.Rand, name string) {
	dims := make([]int64, r.IntN(4))
	for i := range dims {
		dims[i] = int64(r.IntN(7))
	}
	shape := tensor.ShapeOf(dims...)
	for _, side := range []int{sending, receiving} {
		members := r.Perm(len(w.ranks))[:1+r.IntN(len(w.ranks))]
		placement := layout.Placement{}
		if len(dims) > 0 && r.IntN(3) > 0 {
			placement = shard(r.IntN(len(dims)))
		}
		l := layout.Layout{Mesh: layout.MeshOf(len(members)), Placements: []layout.Placement{placement}}
		for i, member := range members {
			p, err := l.Part(shape, i)
			require.NoError(w.t, err)
			w.add(side, member, name, p)
		}
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	half := part(t, tensor.ShapeOf(8), 0, shard(0))
	all := whole(t, 8)
	for want, states := range map[string][2]State{
		"peer 1 receives it, and nobody sends it: send it too": {{}, {Receives: []Tensor{{"w", tensor.Int8, all}}}},
		"give both sides one name (peer 0 sends model.w)": {
			{Sends: []Tensor{{"model.w", tensor.Int8, all}}}, {Receives: []Tensor{{"w", tensor.Int8, all}}},
		},
		"match: peer 1: stepvan: invalid argument: w differs in type or shape (got int16[8], want int8[8] as peer 0 has it)": {
			{Sends: []Tensor{{"w", tensor.Int8, all}}}, {Receives: []Tensor{{"w", tensor.Int16, all}}},
		},
		"w differs in type or shape (got int8[9], want int8[8]": {
			{Sends: []Tensor{{"w", tensor.Int8, all}}}, {Receives: []Tensor{{"w", tensor.Int8, whole(t, 9)}}},
		},
		"w is named twice among what it sends": {{Sends: []Tensor{{"w", tensor.Int8, all}, {"w", tensor.Int8, all}}}, {}},
		"match: w: peer 0 to peer 1: stepvan: invalid argument: layout: a source is missing: no rank has elements [4:8]": {
			{Sends: []Tensor{{"w", tensor.Int8, half}}}, {Receives: []Tensor{{"w", tensor.Int8, all}}},
		},
	} {
		var described [][]byte
		for i := range states {
			b, err := states[i].Append(nil)
			require.NoError(t, err)
			described = append(described, b)
		}
		failed := 0
		for own := range states {
			if _, err := Find([]stepvan.Rank{0, 1}, described, own); err != nil {
				require.ErrorIs(t, err, stepvan.ErrInvalid)
				require.ErrorContains(t, err, want)
				failed++
			}
		}
		require.Positive(t, failed, want)
	}
	for name, tensors := range map[string]Tensor{
		"wrong length (got 0 bytes": {"", tensor.Int8, all},
		"(got 1025 bytes":           {string(make([]byte, 1025)), tensor.Int8, all},
		"does not exist (got 200)":  {"w", tensor.DType(200), all},
	} {
		s := State{Receives: []Tensor{tensors}}
		_, err := s.Append(nil)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	_, err := Find([]stepvan.Rank{0}, nil, 0)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = Find([]stepvan.Rank{0}, [][]byte{{version, 0, 0, 0}}, 1)
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	_, err = Find([]stepvan.Rank{4, 4}, newTwins(t), 0)
	require.ErrorContains(t, err, "rank 4")
}

// newTwins are descriptions of two peers that both send and receive a tensor.
func newTwins(t *testing.T) [][]byte {
	w := newWorld(t, 0, 1)
	for i := range 2 {
		w.add(sending, i, "w", whole(t, 4))
		w.add(receiving, i, "w", whole(t, 4))
	}
	return w.describe()
}

func TestDescriptionsOfPeers(t *testing.T) {
	good := newTwins(t)[0]
	for i := range good {
		_, err := read(good[:i])
		var broken *stepvan.ProtocolError
		require.ErrorAs(t, err, &broken, "%d bytes of %d", i, len(good))
	}
	_, err := read(append(good[:len(good):len(good)], 0))
	require.ErrorContains(t, err, "1 bytes are left behind it")
	for at, value := range map[int]byte{0: 9, len(good) - 1: 7, len(good) - 2: 250} {
		wrong := append([]byte(nil), good...)
		wrong[at] = value
		_, err := Find([]stepvan.Rank{3}, [][]byte{wrong}, 0)
		require.ErrorContains(t, err, "match: peer 3: ")
	}
}

// Find takes anything that a peer sends: it finds moves within the tensors, or returns an error.
func FuzzFind(f *testing.F) {
	w := newWorld(f, 0, 1)
	w.add(sending, 0, "a", part(f, tensor.ShapeOf(4, 6), 0, shard(0)))
	w.add(sending, 1, "a", part(f, tensor.ShapeOf(4, 6), 1, shard(0)))
	w.add(receiving, 1, "a", part(f, tensor.ShapeOf(4, 6), 1, shard(1)))
	own := w.describe()
	f.Add(own[0])
	f.Add(own[1])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, all := range [][][]byte{{b, own[1]}, {own[1], b}} {
			moves, err := Find([]stepvan.Rank{0, 1}, all, 1)
			if err != nil {
				continue
			}
			for i := range moves.Receives {
				m := &moves.Receives[i]
				if len(w.states[1].Receives) == 1 && m.Tensor == 0 && string(all[1]) == string(own[1]) {
					_, err := m.Narrow(w.views[1][receiving][0])
					require.NoError(t, err)
				}
			}
		}
	})
}

// Planning 50,000 tensors of 64 peers, of which half send: goal 2 s.
func BenchmarkFind(b *testing.B) {
	const peers, layers = 64, 50_000
	var ranks []stepvan.Rank
	var described [][]byte
	shapes := []tensor.Shape{tensor.ShapeOf(1024, 512), tensor.ShapeOf(4096, 1024), tensor.ShapeOf(1024)}
	for i := range peers {
		var s State
		list := &s.Sends
		l := layout.Layout{Mesh: layout.MeshOf(peers / 2), Placements: []layout.Placement{shard(0)}}
		if i >= peers/2 {
			list = &s.Receives
			l = layout.Layout{Mesh: layout.MeshOf(8, 4), Placements: []layout.Placement{{}, shard(0)}}
		}
		var parts []layout.Part
		for _, shape := range shapes {
			p, err := l.Part(shape, i%(peers/2))
			require.NoError(b, err)
			parts = append(parts, p)
		}
		for n := range layers {
			*list = append(*list, Tensor{fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", n), tensor.BFloat16, parts[n%len(parts)]})
		}
		code, err := s.Append(nil)
		require.NoError(b, err)
		ranks, described = append(ranks, stepvan.Rank(i)), append(described, code)
	}
	for _, own := range []int{0, peers - 1} {
		b.Run(fmt.Sprint("peer-", own), func(b *testing.B) {
			for b.Loop() {
				moves, err := Find(ranks, described, own)
				require.NoError(b, err)
				b.ReportMetric(float64(len(moves.Sends)+len(moves.Receives)), "moves/op")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/layers, "ns/tensor")
		})
	}
}
