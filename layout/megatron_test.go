package layout

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// recordedSide is what testdata/record_megatron.py says of the sources or the destinations of a parameter.
type recordedSide struct {
	Members [][4]json.RawMessage
	World   int
	Stride  int
	Sizes   []int64
}

func (s *recordedSide) partition(dim int, divided bool) Partition {
	if !divided {
		return Partition{}
	}
	return Partition{Dim: dim, World: s.World, Stride: s.Stride, Sizes: s.Sizes}
}

func (s *recordedSide) members(t *testing.T) (all []Member) {
	t.Helper()
	for _, text := range s.Members {
		var m Member
		for i, to := range []any{&m.Rank, &m.Tensor, &m.Data, &m.Expert} {
			require.NoError(t, json.Unmarshal(text[i], to))
		}
		all = append(all, m)
	}
	return all
}

// TestMegatron compares with plans that megatron-core made of random groups and partitions: the same elements of the
// same ranks. Where there is one data parallel group, megatron-core always reads from its first member. This package
// takes the members in turns. There the offsets are the same, and so is the place of the source in its group.
func TestMegatron(t *testing.T) {
	text, err := os.ReadFile("testdata/megatron.json")
	require.NoError(t, err)
	var recorded struct {
		Cases []struct {
			Dim      int
			Total    int64
			Divided  bool
			Src, Dst recordedSide
			Plans    map[stepvan.Rank][]line
		}
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Len(t, recorded.Cases, 200)
	compared, turns := 0, 0
	for i, x := range recorded.Cases {
		src, dst := x.Src.partition(x.Dim, x.Divided), x.Dst.partition(x.Dim, x.Divided)
		dims := []int64{5, 5}
		dims[x.Dim] = x.Total
		shape := agreed(t, &src, &dst, dims)
		from, err := src.Divide(shape)
		require.NoError(t, err)
		to, err := dst.Divide(shape)
		require.NoError(t, err)
		p, err := NewPlanner(from, to)
		require.NoError(t, err)
		sources := x.Src.members(t)
		g, err := NewDataGroups(sources)
		require.NoError(t, err)
		for _, m := range x.Dst.members(t) {
			chosen, err := g.Sources(&m, &src)
			require.NoError(t, err)
			number := 0
			if x.Divided {
				number = slices.Index(m.Tensor, m.Rank)
			}
			var moves Moves
			require.NoError(t, p.Assign(number, chosen, &moves))
			got, want := lines(&moves, x.Dim), x.Plans[m.Rank]
			if len(candidates(g, &m).groups) == 1 && !slices.Equal(got, want) {
				places(g, got, x.Divided)
				places(g, want, x.Divided)
				turns++
			}
			require.Equal(t, want, got, "case %d, destination %d", i, m.Rank)
			compared++
		}
	}
	require.Greater(t, compared-turns, 2*len(recorded.Cases))
}

// agreed is the shape of the whole, as both sides find it.
func agreed(t *testing.T, src, dst *Partition, dims []int64) tensor.Shape {
	t.Helper()
	whole := shapeOf(t, dims)
	a, err := src.Part(whole, 0)
	require.NoError(t, err)
	b, err := dst.Part(whole, 0)
	require.NoError(t, err)
	got, err := Agree(src, a.Local(), dst, b.Local())
	require.NoError(t, err)
	require.Equal(t, whole, got)
	return got
}

// candidates are the members that a destination may read from.
func candidates(g *DataGroups, dst *Member) *copies {
	if dst.Expert != nil && len(dst.Expert) == g.experts {
		return g.expert[slices.Index(dst.Expert, dst.Rank)]
	}
	return &g.all
}

// places replaces the sources by their places in their tensor parallel groups.
func places(g *DataGroups, all []line, divided bool) {
	for i := range all {
		m := &g.members[g.index[all[i].source]]
		all[i].source = 0
		if divided {
			all[i].source = stepvan.Rank(slices.Index(m.Tensor, m.Rank))
		}
	}
}

// UnmarshalJSON reads a list of four numbers.
func (l *line) UnmarshalJSON(b []byte) error {
	var n [4]int64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*l = line{stepvan.Rank(n[0]), n[1], n[2], n[3]}
	return nil
}
