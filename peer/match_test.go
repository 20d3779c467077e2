package peer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// matchEverywhere has all peers make a plan by names.
func matchEverywhere(t testing.TB, all []*pairtest.PeerOfCluster, name string, sends, recvs [][]peer.Named) ([]*peer.Plan, []error) {
	t.Helper()
	plans, errs := make([]*peer.Plan, len(all)), make([]error, len(all))
	ranks := make([]stepvan.Rank, len(all))
	for i := range all {
		ranks[i] = stepvan.Rank(i)
	}
	var g errgroup.Group
	for i, p := range all {
		g.Go(func() error {
			group, err := p.Group("match "+name, ranks)
			if err != nil {
				return err
			}
			plans[i], errs[i] = group.Match(pairtest.Context(t), name, sends[i], recvs[i])
			return nil
		})
	}
	require.NoError(t, g.Wait())
	t.Cleanup(func() {
		for _, pl := range plans {
			if pl != nil {
				require.NoError(t, pl.Close(pairtest.Context(t)))
			}
		}
	})
	return plans, errs
}

// sharded is one of several parts of a matrix of bytes, whose element in row r and column c is value(r, c).
func sharded(t testing.TB, p *pairtest.PeerOfCluster, shape tensor.Shape, dim, parts, index int, value func(r, c int64) byte) peer.Named {
	t.Helper()
	l := layout.Layout{Mesh: layout.MeshOf(parts), Placements: []layout.Placement{{Kind: layout.Sharded, Dim: dim}}}
	part, err := l.Part(shape, index)
	require.NoError(t, err)
	local := part.Local()
	x := empty(t, p, shared, max(part.Elems(), 1))
	if value != nil {
		for _, r := range part.Spans(0) {
			for _, c := range part.Spans(1) {
				for i := r.Start; i < r.Stop; i++ {
					for j := c.Start; j < c.Stop; j++ {
						x.Bytes()[(r.Local+i-r.Start)*local.Dims()[1]+c.Local+j-c.Start] = value(i, j)
					}
				}
			}
		}
	}
	v, err := x.AsStrided(local, []int64{local.Dims()[1], 1}, 0)
	require.NoError(t, err)
	return peer.Named{Name: "mlp.weight", Part: part, View: v}
}

// Two peers have the rows of a matrix, and three have its columns, which do not divide evenly.
func TestMatch(t *testing.T) {
	value := func(r, c int64) byte { return byte(31*r + 7*c + 1) }
	shape := tensor.ShapeOf(9, 16)
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 5)
		sends, recvs := make([][]peer.Named, 5), make([][]peer.Named, 5)
		for i := range 2 {
			sends[i] = []peer.Named{sharded(t, all[i], shape, 0, 2, i, value)}
		}
		for i := range 3 {
			recvs[2+i] = []peer.Named{sharded(t, all[2+i], shape, 1, 3, i, nil)}
		}
		plans, errs := matchEverywhere(t, all, "weights", sends, recvs)
		for i := range all {
			require.NoError(t, errs[i])
		}
		runEverywhere(t, plans, 1)
		for i := range 3 {
			want := sharded(t, all[0], shape, 1, 3, i, value)
			require.Equal(t, contents(t, want.View), contents(t, recvs[2+i][0].View), "part %d", i)
		}
	})
}

func TestMatchesThatDoNotFit(t *testing.T) {
	shape := tensor.ShapeOf(4, 6)
	rows := func(t *testing.T, p *pairtest.PeerOfCluster) peer.Named {
		return sharded(t, p, shape, 0, 1, 0, func(int64, int64) byte { return 1 })
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, send, recv *peer.Named)
		texts  [2]string // of the sender and of the receiver
	}{
		"another name": {func(_ *testing.T, _, recv *peer.Named) { recv.Name = "bias" }, [2]string{"nobody sends", "nobody sends"}},
		"another shape": {func(t *testing.T, _, recv *peer.Named) {
			part, err := layout.Whole(tensor.ShapeOf(6, 4))
			require.NoError(t, err)
			recv.Part = part
			v, err := recv.View.Transpose(0, 1)
			require.NoError(t, err)
			recv.View = v
		}, [2]string{"mlp.weight differs in type or shape", "mlp.weight differs in type or shape"}},
		"a part of another shape": {func(t *testing.T, send, _ *peer.Named) {
			v, err := send.View.Narrow(0, 0, 2)
			require.NoError(t, err)
			send.View = v
		}, [2]string{"the view does not have the shape of its part (got [2 6], want [4 6])", "shape of its part"}},
		"without a name": {func(_ *testing.T, send, _ *peer.Named) { send.Name = "" }, [2]string{"wrong length", "wrong length"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := pairtest.NewPeers(t, pairtest.Options{}, 2)
			send, recv := rows(t, all[0]), rows(t, all[1])
			c.change(t, &send, &recv)
			plans, errs := matchEverywhere(t, all, "weights", [][]peer.Named{{send}, nil}, [][]peer.Named{nil, {recv}})
			for i, err := range errs {
				require.ErrorContains(t, err, c.texts[i], "peer %d", i)
				require.Nil(t, plans[i])
			}
		})
	}
}

// A tensor that only its own peer can refuse fails the match at all members, and nobody waits for that peer.
func TestAMatchOfADestinationThatOverlapsItself(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 3)
	row := empty(t, all[1], shared, 8)
	twice, err := row.AsStrided(tensor.ShapeOf(4, 8), []int64{0, 1}, 0)
	require.NoError(t, err)
	whole := empty(t, all[0], shared, 32)
	from, err := whole.AsStrided(tensor.ShapeOf(4, 8), []int64{8, 1}, 0)
	require.NoError(t, err)
	sends := [][]peer.Named{{{Name: "w", View: from}}, nil, nil}
	recvs := [][]peer.Named{nil, {{Name: "w", View: twice}}, nil}
	_, errs := matchEverywhere(t, all, "weights", sends, recvs)
	require.ErrorIs(t, errs[1], stepvan.ErrInvalid)
	require.ErrorIs(t, errs[0], stepvan.ErrRemote, "it is told")
	for _, err := range errs[:2] {
		require.ErrorContains(t, err, "several elements in one place")
	}
}
