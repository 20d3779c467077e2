package layout

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// recordedRoster is a model on two sets of ranks, and the plans that megatron-core makes.
type recordedRoster struct {
	Groups     [][]recordedMember
	Parameters []recordedParameter
}

type recordedParameter struct {
	Name     string
	Src, Dst recordedSide
	Plans    map[stepvan.Rank][]line
}

// recordedSide has the holders of a parameter. Only one that is divided has a dimension.
type recordedSide struct {
	Members int // in the groups of the roster
	Local   []int64
	Dim     *int
	Stride  int
	Sizes   []int64
}

func (s *recordedSide) partition(members []recordedMember) Partition {
	if s.Dim == nil {
		return Partition{}
	}
	return Partition{Dim: *s.Dim, World: len(members[0].Tensor), Stride: s.Stride, Sizes: s.Sizes}
}

// TestMegatron compares with plans that megatron-core made of random rosters: the same elements of the same ranks.
// Where there is one data parallel group, megatron-core always reads from its first member. This package takes the
// members in turns. There the offsets are the same, and so is the place of the source in its group.
func TestMegatron(t *testing.T) {
	compared, turns := 0, 0
	eachCase(t, "rosters.jsonl", 50, func(i int, x *recordedRoster) {
		for k := range x.Parameters {
			c, n := x.compare(t, &x.Parameters[k])
			compared, turns = compared+c, turns+n
			require.False(t, t.Failed(), "case %d", i)
		}
	})
	t.Logf("%d plans, %d of which take the members of a group in turns", compared, turns)
	require.Greater(t, compared, 3*turns)
	require.Positive(t, turns)
}

// compare returns how many plans it has compared, and in how many of them the sources take turns.
func (x *recordedRoster) compare(t *testing.T, p *recordedParameter) (compared, turns int) {
	t.Helper()
	sources, targets := membersOf(x.Groups[p.Src.Members]), membersOf(x.Groups[p.Dst.Members])
	src, dst := p.Src.partition(x.Groups[p.Src.Members]), p.Dst.partition(x.Groups[p.Dst.Members])
	shape, err := Agree(&src, shapeOf(t, p.Src.Local), &dst, shapeOf(t, p.Dst.Local))
	require.NoError(t, err)
	plan := plannerOf(t, &src, &dst, shape)
	g, err := NewDataGroups(sources)
	require.NoError(t, err)
	require.Len(t, p.Plans, len(targets))
	dim := dst.Dim
	if p.Dst.Dim == nil {
		dim = src.Dim
	}
	for i := range targets {
		m := &targets[i]
		chosen, err := g.Sources(m, &src)
		require.NoError(t, err)
		number := 0
		if p.Dst.Dim != nil {
			number = slices.Index(m.Tensor, m.Rank)
		}
		var moves Moves
		require.NoError(t, plan.Assign(number, chosen, &moves))
		got, want := lines(&moves, dim), p.Plans[m.Rank]
		once(t, want, p.Dst.Local[dim])
		if len(candidates(g, m).groups) == 1 && !slices.Equal(got, want) {
			places(g, got, p.Src.Dim != nil)
			places(g, want, p.Src.Dim != nil)
			turns++
		}
		require.Equal(t, want, got, "%s, destination %d", p.Name, m.Rank)
		compared++
	}
	return compared, turns
}

func plannerOf(t *testing.T, src, dst *Partition, shape tensor.Shape) *Planner {
	t.Helper()
	from, err := src.Divide(shape)
	require.NoError(t, err)
	to, err := dst.Divide(shape)
	require.NoError(t, err)
	p, err := NewPlanner(from, to)
	require.NoError(t, err)
	return p
}

// once holds lines against the length of the destination: one behind the other they are all of it.
func once(t *testing.T, all []line, length int64) {
	t.Helper()
	at := int64(0)
	for _, l := range all {
		require.Equal(t, at, l.dst)
		require.Positive(t, l.extent)
		at += l.extent
	}
	require.Equal(t, length, at)
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

// recordedMember is a [Member] in the form of a recording: a list of rank, tensor, data and expert parallel group.
type recordedMember Member

// UnmarshalJSON reads a list of a rank and three groups.
func (m *recordedMember) UnmarshalJSON(b []byte) error {
	var texts [4]json.RawMessage
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	for i, to := range []any{&m.Rank, &m.Tensor, &m.Data, &m.Expert} {
		if err := json.Unmarshal(texts[i], to); err != nil {
			return err
		}
	}
	return nil
}

func membersOf(recorded []recordedMember) []Member {
	all := make([]Member, len(recorded))
	for i := range recorded {
		all[i] = Member(recorded[i])
	}
	return all
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
