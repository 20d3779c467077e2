package peer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// Rows come in the order of their numbers: short ones, and long ones that a socket takes from where they lie. Several
// chunks begin and end amid a row.
func TestPutRows(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		for _, c := range []struct{ width, picked int64 }{{7, 3}, {1001, 2500}, {5000, 500}} {
			for self := range 2 {
				t.Run(fmt.Sprint(c, self), func(t *testing.T) {
					all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
					x := empty(t, all[0], shared, (c.picked+1)*c.width)
					w := expose(t, all[0], matrix(t, x, c.width), peer.WindowOptions{Rights: peer.RightWrite})
					p := all[1-self]
					const kept = 50
					from := filled(t, p, heap, kept*(c.width+3), 3)
					rows := make([]int64, c.picked)
					var want []byte
					for i := range rows {
						rows[i] = int64(i) * 31 % kept
						want = append(want, from.Bytes()[rows[i]*(c.width+3)+2:][:c.width]...)
					}
					for range 2 {
						clear(x.Bytes())
						h, err := p.Library().PutRows(columns(t, from, c.width+3, 2, c.width), rows, w.Token(), []int64{1, 0}, nil)
						finish(t, h, err)
						require.Equal(t, want, x.Bytes()[c.width:])
						require.Equal(t, make([]byte, c.width), x.Bytes()[:c.width])
					}
				})
			}
		}
	})
}

func TestPutRowsRefuses(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Van: pairtest.Vans()[0]}, 2)
	x := empty(t, all[0], shared, 100)
	w := expose(t, all[0], matrix(t, x, 10), peer.WindowOptions{Rights: peer.RightWrite})
	from := filled(t, all[1], heap, 100, 3)
	across, err := matrix(t, from, 10).Transpose(0, 1)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		matrix tensor.Strided
		rows   []int64
		note   []byte
	}{
		"a row behind the last":  {matrix(t, from, 10), []int64{0, 10}, nil},
		"a row before the first": {matrix(t, from, 10), []int64{-1}, nil},
		"rows that lie apart":    {across, []int64{1}, nil},
		"no matrix":              {from.Strided(), []int64{1}, nil},
		"a long note":            {matrix(t, from, 10), []int64{1}, make([]byte, peer.MaxMail+1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := all[1].Library().PutRows(c.matrix, c.rows, w.Token(), nil, c.note)
			require.ErrorIs(t, err, stepvan.ErrInvalid)
		})
	}
}
