package reshard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// TestChooseSource has the vector of the source rule, and a destination that is a source itself.
func TestChooseSource(t *testing.T) {
	one := func(r stepvan.Rank, source bool, g Groups) []byte {
		p := []Parameter{{Name: "w", Form: Form{DType: tensor.Float32, Parallel: &Parallel{Groups: g}}}}
		roster := Roster{Rank: r, Destinations: p}
		if source {
			roster = Roster{Rank: r, Sources: p}
		}
		b, err := roster.Append(nil)
		require.NoError(t, err)
		return b
	}
	var sources [][]byte
	src := model{tp: 2, ep: 1, pp: 1, copies: 4}
	for r := range stepvan.Rank(8) {
		sources = append(sources, one(r, true, src.groups(r)))
	}
	for i := range stepvan.Rank(8) {
		got, err := ChooseSource(sources, one(8+i, false, Groups{}))
		require.NoError(t, err)
		require.Equal(t, i, got)
		got, err = ChooseSource(sources[2:], one(i, false, Groups{}))
		require.NoError(t, err)
		if i >= 2 {
			require.Equal(t, i, got, "its own copy")
		}
	}
	empty, err := (&Roster{Rank: 9}).Append(nil)
	require.NoError(t, err)
	for _, x := range []struct {
		sources [][]byte
		dst     []byte
	}{{sources, empty}, {[][]byte{empty}, one(9, false, Groups{})}, {nil, one(9, false, Groups{})}, {sources, one(9, false, Groups{Data: []stepvan.Rank{1}})}} {
		_, err := ChooseSource(x.sources, x.dst)
		if len(x.dst) > len(empty) && len(x.sources) == 8 {
			require.NoError(t, err, "the groups of a destination do not choose")
			continue
		}
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
	_, err = ChooseSource([][]byte{nil}, one(9, false, Groups{}))
	require.ErrorContains(t, err, "not the beginning")
	_, err = ChooseSource(nil, nil)
	require.ErrorContains(t, err, "not the beginning")
}
