package refit

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// cluster has the shares of all processes of a Spec, each with its memory.
func cluster(t *testing.T, s Spec) (all []*Share) {
	t.Helper()
	s.SetDefaults()
	require.Empty(t, s.Check())
	for _, destination := range []bool{false, true} {
		n := s.Sources()
		if destination {
			n = s.Destinations()
		}
		for rank := range n {
			share, err := s.Share(destination, rank)
			require.NoError(t, err)
			share.Use(make([]byte, share.Bytes))
			all = append(all, share)
		}
	}
	return all
}

// move copies everything, element by element.
func move(all []*Share) {
	for _, dst := range all {
		if !dst.Destination {
			continue
		}
		for _, m := range dst.Moves {
			src := all[m.Peer]
			rows, last := int64(1), len(m.Extent)-1
			if last > 0 {
				rows = m.Extent[0]
			}
			for r := range rows {
				to, from := m.Mine.At, m.Theirs.At
				if last > 0 {
					to, from = to+r*m.Mine.Strides[0]*2, from+r*m.Theirs.Strides[0]*2
				}
				copy(dst.memory[to:][:2*m.Extent[last]], src.memory[from:])
			}
		}
	}
}

var specs = map[string]Spec{
	"default":         {Bytes: 8 << 20},
	"columns":         {Bytes: 8 << 20, Dim: 1},
	"short rows":      {Bytes: 2 << 20, Dim: 1, Row: 64},
	"uneven layouts":  {Bytes: 4 << 20, From: Layout{3, 1, 1}, To: Layout{2, 1, 1}},
	"copies":          {Bytes: 4 << 20, From: Layout{2, 2, 2}, To: Layout{4, 1, 2}, Dim: 1},
	"fewer experts":   {Bytes: 8 << 20, From: Layout{1, 4, 1}, To: Layout{1, 2, 1}},
	"one to one":      {Bytes: 8 << 20, Pair: true},
	"one and one":     {Bytes: 1 << 20, From: Layout{1, 1, 1}, To: Layout{1, 1, 1}},
	"empty":           {Moves: 10000},
	"empty, one pair": {Moves: 80, Pair: true},
}

// Whatever the layouts are, each destination gets the elements that belong to it, and all of them.
func TestShares(t *testing.T) {
	for name, s := range specs {
		t.Run(name, func(t *testing.T) {
			all := cluster(t, s)
			for _, share := range all {
				share.Fill(1)
				if share.Destination {
					clear(share.memory)
					require.Error(t, share.Check(1))
				}
			}
			move(all)
			var sent, received int64
			for _, share := range all {
				require.NoError(t, share.Check(1))
				if !share.Destination { // one of two copies may send nothing
					sent += share.Moved
					continue
				}
				require.NotEmpty(t, share.Moves)
				received += share.Moved
				require.Error(t, share.Check(2))
				if !s.Pair && s.Moves == 0 {
					require.Equal(t, share.Bytes, share.Moved, "each element comes once")
					before := append([]byte(nil), share.memory...)
					share.Fill(1)
					require.Equal(t, before, share.memory)
				}
			}
			require.Equal(t, received, sent)
		})
	}
}

// Both sides of a move have the same number, and name each other.
func TestMovesHaveTwoSides(t *testing.T) {
	for name, s := range specs {
		all := cluster(t, s)
		type end struct{ from, to int }
		sends := map[string]end{}
		for rank, share := range all {
			for _, m := range share.Moves {
				key := fmt.Sprint(m.ID, m.Label, m.Extent)
				if !share.Destination {
					sends[key] = end{rank, int(m.Peer)}
				}
			}
		}
		for rank, share := range all {
			for _, m := range share.Moves {
				if share.Destination {
					key := fmt.Sprint(m.ID, m.Label, m.Extent)
					require.Equal(t, end{int(m.Peer), rank}, sends[key], name)
					delete(sends, key)
				}
			}
		}
		require.Empty(t, sends, name)
	}
}

// The moves of the empty model are small, and as many as were asked for.
func TestMoves(t *testing.T) {
	all := cluster(t, Spec{Moves: 10000})
	require.Len(t, all, 6)
	pairs, moves := map[[2]int]int{}, 0
	for rank, share := range all {
		for _, m := range share.Moves {
			require.Equal(t, int64(MoveBytes), bytesOf(m.Extent))
			if share.Destination {
				pairs[[2]int{int(m.Peer), rank}]++
				moves++
			}
		}
	}
	require.Len(t, pairs, 8)
	require.Equal(t, 10000, moves)
}

func TestLayouts(t *testing.T) {
	for text, want := range map[string]Layout{
		"tp4": {4, 1, 1}, "tp2ep2": {2, 2, 1}, "ep8": {1, 8, 1}, "dp2": {1, 1, 2}, "tp2ep2dp3": {2, 2, 3}, "tp1": {1, 1, 1},
	} {
		l, err := ParseLayout(text)
		require.NoError(t, err)
		require.Equal(t, want, l)
		require.Equal(t, text, l.String())
		for rank := range l.Ranks() {
			require.Equal(t, rank, l.rank(l.place(rank)))
		}
	}
	for _, text := range []string{"", "4", "tp0", "tp", "ep2tp2", "tp2x", "tp9999", "tp32ep32", "TP4"} {
		_, err := ParseLayout(text)
		require.ErrorIs(t, err, stepvan.ErrInvalid, text)
	}
}

func TestSpecTravels(t *testing.T) {
	for _, s := range specs {
		s.SetDefaults()
		b, err := json.Marshal(s)
		require.NoError(t, err)
		var got Spec
		require.NoError(t, json.Unmarshal(b, &got))
		require.Equal(t, s, got)
	}
	var zero Spec
	require.NoError(t, json.Unmarshal([]byte(`{}`), &zero))
	require.Zero(t, zero)
}

// The word one is another one for destinations.
func TestWhoseModelIsShared(t *testing.T) {
	for memory, want := range map[Memory][2]bool{
		"": {true, true}, Shared: {true, true}, Sources: {true, false}, Destinations: {false, true}, One: {false, true}, Torch: {false, false},
	} {
		s := Spec{Memory: memory}
		s.SetDefaults()
		require.Empty(t, s.Check())
		require.Equal(t, want, [2]bool{s.Memory.InFile(false), s.Memory.InFile(true)}, memory)
	}
}

func TestMistakes(t *testing.T) {
	for want, s := range map[string]Spec{
		`--memory "x" is unknown`: {Memory: "x"}, "--dim is out of range": {Dim: 2}, "--moves is out of range": {Moves: -1},
		"--bytes does not go with --moves": {Moves: 8, Bytes: 4}, "--rows and --dim do not go with --moves": {Moves: 8, Row: 64},
		"--moves has no experts": {Moves: 8, To: Layout{2, 2, 1}}, "to be a multiple": {Moves: 8, To: Layout{3, 1, 1}},
		"--rows is out of range": {Row: 63, Dim: 1}, "--bytes is out of range": {Bytes: 10},
	} {
		s.SetDefaults()
		mistakes := s.Check()
		require.NotEmpty(t, mistakes, want)
		require.ErrorContains(t, mistakes[0], want)
		require.ErrorIs(t, mistakes[0], stepvan.ErrInvalid)
	}
}
