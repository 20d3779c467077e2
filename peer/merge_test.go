package peer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/cast"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// fillNumbers gives a view small numbers of its type, some of them negative or with a fraction.
func fillNumbers(t testing.TB, v tensor.Strided, r *rand.Rand) {
	t.Helper()
	var b []byte
	for range v.Len() / int64(v.DType().Size()) {
		x := float64(r.IntN(4000)-2000) / 256
		switch v.DType() {
		case tensor.Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(r.IntN(9)))
		case tensor.Bool:
			b = append(b, byte(r.IntN(2)))
		default:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	from := tensor.Float64
	if d := v.DType(); d == tensor.Int32 || d == tensor.Bool {
		from = d
	}
	all, err := tensor.FromBytes(from, v.Shape(), b)
	require.NoError(t, err)
	s := all.Strided()
	require.NoError(t, cast.Copy(&v, &s, cast.Overwrite))
}

// like makes a contiguous view of a type and a shape.
func like(t testing.TB, d tensor.DType, shape tensor.Shape) tensor.Strided {
	t.Helper()
	n, ok := shape.Elems()
	require.True(t, ok)
	x, err := tensor.FromBytes(d, shape, make([]byte, n*int64(d.Size())))
	require.NoError(t, err)
	return x.Strided()
}

// converted is what becomes of a view on its way.
func converted(t testing.TB, v tensor.Strided, types ...tensor.DType) tensor.Strided {
	t.Helper()
	for _, d := range types {
		if d != 0 {
			to := like(t, d, v.Shape())
			require.NoError(t, cast.Copy(&to, &v, cast.Overwrite))
			v = to
		}
	}
	return v
}

// dense makes a tensor of a type in some memory, as a view.
func dense(t testing.TB, p *pairtest.PeerOfCluster, where memory, d tensor.DType, dims ...int64) tensor.Strided {
	t.Helper()
	if where == heap {
		return like(t, d, tensor.ShapeOf(dims...))
	}
	x, err := p.Memory.Zeros(d, dims...)
	require.NoError(t, err)
	t.Cleanup(func() { pairtest.Free(t, x) })
	return x.Strided()
}

// casts are types of the two ends, and on the way.
var casts = [][3]tensor.DType{
	{tensor.Float32, tensor.BFloat16, tensor.BFloat16},
	{tensor.Float32, tensor.Float32, tensor.BFloat16},
	{tensor.BFloat16, tensor.BFloat16, tensor.Float32},
	{tensor.BFloat16, tensor.Float32, tensor.Float32},
	{tensor.Float64, tensor.Float8E4M3FN, tensor.Float8E4M3FN},
	{tensor.Float16, tensor.Float16, tensor.BFloat16},
	{tensor.Float32, tensor.Float32, tensor.Float32},
}

func TestAPlanConverts(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		r := rand.New(rand.NewPCG(7, 8))
		for round := range 4 {
			sends, recvs := make([][]peer.Move, 2), make([][]peer.Move, 2)
			var want []tensor.Strided
			var sent, came int64
			for id, c := range casts {
				for _, to := range []int{0, 1} { // to this process, and to the other one
					dims := []int64{1 + r.Int64N(20), 1 + r.Int64N(200)}
					if round == 3 && id%3 == to {
						dims = []int64{race.Fewer[int64](300), 1000} // several chunks
					}
					from, dst := randomView(t, all[0], r, c[0], dims), randomView(t, all[to], r, c[2], dims)
					fillNumbers(t, from, r)
					sends[0] = append(sends[0], peer.Move{ID: uint64(id), Peer: stepvan.Rank(to), View: from, Wire: c[1]})
					recvs[to] = append(recvs[to], peer.Move{ID: uint64(id), Peer: 0, View: dst, Wire: c[1]})
					want = append(want, converted(t, from, c[1], c[2]))
					if to == 1 {
						sent += from.Len() / int64(c[0].Size()) * int64(c[1].Size())
					}
				}
			}
			plans := planEverywhere(t, all, fmt.Sprint("casts", round), sends, recvs)
			runEverywhere(t, plans, 1)
			for i, w := range want {
				got := recvs[i%2][i/2].View
				require.Equal(t, contents(t, w), contents(t, got), "%v at %d: %s to %s", casts[i/2], i%2, sends[0][i].View, got)
			}
			s := plans[0].Stats()
			came = plans[1].Stats().Received
			require.Equal(t, sent, s.Sent)
			require.Equal(t, sent, came)
		}
	})
}

// mergeCase is a plan in which peers bring elements to one destination of peer 0.
type mergeCase struct {
	sends, recvs [][]peer.Move
	dst          tensor.Strided
	from         []tensor.Strided // in the order of the merge
	wire         tensor.DType
	op           peer.Merge
}

// castMerges are the merges of package cast.
var castMerges = map[peer.Merge]cast.Merge{
	peer.Sum: cast.Sum, peer.Avg: cast.Sum, peer.Max: cast.Max, peer.Min: cast.Min, peer.Product: cast.Product,
}

// want computes what the destination has in the end.
func (c *mergeCase) want(t testing.TB) []byte {
	t.Helper()
	to := like(t, c.dst.DType(), c.dst.Shape())
	for i, v := range c.from {
		m := castMerges[c.op]
		if i == 0 {
			m = cast.Overwrite
		}
		travels := converted(t, v, c.wire)
		require.NoError(t, cast.Copy(&to, &travels, m))
	}
	if c.op == peer.Avg {
		require.NoError(t, cast.Divide(&to, len(c.from)))
	}
	return contents(t, to)
}

// newMerge makes a plan that merges sources of several peers, peer 0 among them. memories says where the sources are.
func newMerge(t testing.TB, all []*pairtest.PeerOfCluster, r *rand.Rand, types [3]tensor.DType, op peer.Merge, dims []int64, dst tensor.Strided, view func(i int, d tensor.DType) tensor.Strided) *mergeCase {
	t.Helper()
	n := len(all)
	c := &mergeCase{sends: make([][]peer.Move, n), recvs: make([][]peer.Move, n), dst: dst, wire: types[1], op: op}
	ids := r.Perm(2 * n) // of two sources of each peer
	at := make([]tensor.Strided, 2*n)
	for i := range 2 * n {
		v := view(i%n, types[0])
		fillNumbers(t, v, r)
		at[ids[i]] = v
		m := peer.Move{ID: uint64(ids[i]), Wire: types[1], Label: fmt.Sprint("part ", i)}
		m.View = v
		c.sends[i%n] = append(c.sends[i%n], m)
		m.View, m.Peer, m.Merge = dst, stepvan.Rank(i%n), op
		c.recvs[0] = append(c.recvs[0], m)
	}
	c.from = at
	return c
}

func TestAPlanMerges(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		r := rand.New(rand.NewPCG(9, 10))
		types := append([][3]tensor.DType{{tensor.Int32, 0, tensor.Int32}, {tensor.Bool, 0, tensor.Bool}, {tensor.BFloat16, 0, tensor.BFloat16}}, casts...)
		for op := peer.Sum; op <= peer.Product; op++ {
			for i, c := range types {
				if op == peer.Avg && i < 2 || (i+int(op))%3 != 0 {
					continue // integers have no mean, and each merge is for some of the types
				}
				dims := []int64{1 + r.Int64N(30), 1 + r.Int64N(30), 1 + r.Int64N(3)}
				if (i == 3 || i == 4) && !race.Enabled { // which would take minutes
					dims = []int64{3, 300, 300} // several units
				}
				m := newMerge(t, all, r, c, op, dims, randomView(t, all[0], r, c[2], dims), func(i int, d tensor.DType) tensor.Strided {
					return randomView(t, all[i], r, d, dims) // on the heap or shared
				})
				plans := planEverywhere(t, all, fmt.Sprint(op, i), m.sends, m.recvs)
				for version := range uint64(2) {
					fillNumbers(t, m.dst, r) // what was there does not matter
					runEverywhere(t, plans, version+1)
					require.Equal(t, m.want(t), contents(t, m.dst), "%s of %v to %s", op, c, m.dst)
					require.Equal(t, version+1, plans[0].Version())
					for _, v := range m.from {
						fillNumbers(t, v, r)
					}
				}
				s := plans[0].Stats()
				require.Equal(t, 6, s.Merged)
				require.Equal(t, s.Received, plans[1].Stats().Sent+plans[2].Stats().Sent)
				require.Equal(t, s.Received, s.Viewed+s.Streamed)
			}
		}
	})
}

// Each way gives the same bits of a merge.
func TestAMergeHasTheSameBitsByEveryWay(t *testing.T) {
	for _, c := range casts {
		var first []byte
		eachVan(t, func(t *testing.T, v pairtest.Van) {
			all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
			for _, where := range []memory{heap, shared} {
				r := rand.New(rand.NewPCG(3, 4))
				dst := dense(t, all[0], where, c[2], 70, 90)
				m := newMerge(t, all, r, c, peer.Avg, nil, dst, func(i int, d tensor.DType) tensor.Strided {
					return dense(t, all[i], where, d, 70, 90)
				})
				plans := planEverywhere(t, all, "same", m.sends, m.recvs)
				runEverywhere(t, plans, 1)
				if got := contents(t, dst); first == nil {
					first = got
				} else {
					require.Equal(t, first, got)
				}
				for _, pl := range plans {
					require.NoError(t, pl.Close(pairtest.Context(t)))
				}
			}
		})
	}
}

func TestReceivesThatMayNotShareADestination(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	x := dense(t, p, heap, tensor.Float32, 10, 10)
	part, err := x.Narrow(0, 0, 5)
	require.NoError(t, err)
	half := dense(t, p, heap, tensor.Float32, 5, 10)
	a, b := dense(t, p, heap, tensor.Float32, 10, 10), dense(t, p, heap, tensor.Float32, 10, 10)
	plan := func(sends, recvs []peer.Move) error {
		pl, err := p.Plan(pairtest.Context(t), "w", sends, recvs)
		if err == nil {
			require.NoError(t, pl.Close(pairtest.Context(t)))
		}
		return err
	}
	two := []peer.Move{{ID: 1, View: a}, {ID: 2, View: b}}
	for _, c := range []struct {
		name         string
		sends, recvs []peer.Move
		want         string
	}{
		{"no merge", two, []peer.Move{{ID: 1, View: x}, {ID: 2, View: x}}, "both write to the same memory"},
		{"one has none", two, []peer.Move{{ID: 1, View: x, Merge: peer.Sum}, {ID: 2, View: x}}, "move 1 from peer 0 and move 2"},
		{"two merges", two, []peer.Move{{ID: 1, View: x, Merge: peer.Sum}, {ID: 2, View: x, Merge: peer.Max}}, "all the same view and Merge"},
		{"another view", []peer.Move{{ID: 1, View: a}, {ID: 2, View: half}},
			[]peer.Move{{ID: 1, View: x, Merge: peer.Sum}, {ID: 2, View: part, Merge: peer.Sum}}, "both write to the same memory"},
		{"a send", []peer.Move{{ID: 1, View: a, Merge: peer.Sum}}, []peer.Move{{ID: 1, View: x, Merge: peer.Sum}}, "a send has none"},
		{"no such merge", two[:1], []peer.Move{{ID: 1, View: x, Merge: 6}}, "got 6"},
		{"no such type", two[:1], []peer.Move{{ID: 1, View: x, Wire: 99}}, "got 99"},
	} {
		err := plan(c.sends, c.recvs)
		require.ErrorIs(t, err, stepvan.ErrInvalid, c.name)
		require.ErrorContains(t, err, c.want, c.name)
	}
	require.NoError(t, plan(two, []peer.Move{{ID: 1, View: x, Merge: peer.Sum}, {ID: 2, View: x, Merge: peer.Sum}}))
}

func TestTypesThatDoNotFit(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		view := func(p int, d tensor.DType, n int64) tensor.Strided { return dense(t, all[p], shared, d, n) }
		for _, c := range []struct {
			name       string
			send, recv peer.Move
			mismatch   bool
			want       []string
		}{
			{"types without Wire", peer.Move{View: view(0, tensor.Float32, 6)}, peer.Move{View: view(1, tensor.BFloat16, 6)}, true,
				[]string{"float32[6]", "bfloat16[6]", "give both the same type"}},
			{"one Wire", peer.Move{View: view(0, tensor.Float32, 6), Wire: tensor.BFloat16}, peer.Move{View: view(1, tensor.BFloat16, 6)}, true,
				[]string{"float32[6] with Wire bfloat16", "bfloat16[6] without Wire", "give both the same Wire"}},
			{"two Wires", peer.Move{View: view(0, tensor.Float32, 6), Wire: tensor.BFloat16}, peer.Move{View: view(1, tensor.BFloat16, 6), Wire: tensor.Float32}, true,
				[]string{"with Wire bfloat16", "with Wire float32"}},
			{"sizes", peer.Move{View: view(0, tensor.Float32, 6), Wire: tensor.BFloat16}, peer.Move{View: view(1, tensor.BFloat16, 7), Wire: tensor.BFloat16}, true,
				[]string{"float32[6]", "bfloat16[7]"}},
			{"a third type", peer.Move{View: view(0, tensor.Float32, 6), Wire: tensor.Float16}, peer.Move{View: view(1, tensor.BFloat16, 6), Wire: tensor.Float16}, false,
				[]string{"float32", "bfloat16", "float16", "one of the two"}},
			{"no such cast", peer.Move{View: view(0, tensor.Float32, 6), Wire: tensor.Int32}, peer.Move{View: view(1, tensor.Int32, 6), Wire: tensor.Int32}, false,
				[]string{"float32", "int32"}},
			{"no such merge", peer.Move{View: view(0, tensor.Complex64, 6)}, peer.Move{View: view(1, tensor.Complex64, 6), Merge: peer.Sum}, false,
				[]string{"sum", "complex64"}},
			{"no such mean", peer.Move{View: view(0, tensor.Int32, 6)}, peer.Move{View: view(1, tensor.Int32, 6), Merge: peer.Avg}, false,
				[]string{"int32", "cannot be divided"}},
		} {
			c.send.ID, c.send.Peer, c.send.Label = 4, 1, "weight"
			c.recv.ID, c.recv.Peer, c.recv.Label = 4, 0, "weight"
			_, errs := tryPlan(t, all, "weights", [][]peer.Move{{c.send}, nil}, [][]peer.Move{nil, {c.recv}})
			for i, err := range errs {
				var m *peer.MismatchError
				require.Equal(t, c.mismatch, errors.As(err, &m), "%s at peer %d: %v", c.name, i, err)
				require.ErrorIs(t, err, stepvan.ErrInvalid, "%s at peer %d", c.name, i)
				require.ErrorContains(t, err, "move 4 (weight)")
				for _, text := range c.want {
					require.ErrorContains(t, err, text, "%s at peer %d", c.name, i)
				}
			}
		}
	})
}
