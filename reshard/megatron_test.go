package reshard

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

// recordings may name another folder than that of the committed recordings: make oracle compares with more cases.
var recordings = flag.String("recordings", "../layout/testdata", "the folder of the recording that TestMegatron reads")

// recordedRoster is a model on two sets of ranks, and the plans that megatron-core makes.
type recordedRoster struct {
	Groups     [][]recordedMember
	Parameters []recordedParameter
}

// recordedMember is a rank, and its tensor, data and expert parallel groups.
type recordedMember struct {
	rank stepvan.Rank
	Groups
}

// UnmarshalJSON reads a list of a rank and three groups.
func (m *recordedMember) UnmarshalJSON(b []byte) error {
	var texts [4]json.RawMessage
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	for i, to := range []any{&m.rank, &m.Tensor, &m.Data, &m.Expert} {
		if err := json.Unmarshal(texts[i], to); err != nil {
			return err
		}
	}
	return nil
}

type recordedParameter struct {
	Name     string
	Src, Dst recordedSide
	Plans    map[stepvan.Rank][][4]int64 // source, offset there, offset here, length
}

// recordedSide has the holders of a parameter. Only one that is divided has a dimension.
type recordedSide struct {
	Members int // in the groups of the roster
	Local   []int64
	Dim     *int
	Stride  int
	Sizes   []int64
}

func (s *recordedSide) parameter(name string, m *recordedMember) Parameter {
	p := Parallel{Expert: m.Expert != nil, Indexed: !strings.HasSuffix(name, ".fused"), Groups: m.Groups}
	if s.Dim != nil {
		p.Divided, p.Dim, p.Stride, p.Sizes = true, *s.Dim, s.Stride, s.Sizes
	}
	return Parameter{Name: name, Form: Form{DType: tensor.BFloat16, Shape: tensor.ShapeOf(s.Local...), Parallel: &p}}
}

// TestMegatron compares with plans that megatron-core made of random rosters: the same elements of the same ranks.
// Where there is one data parallel group, megatron-core always reads from its first member. This package takes the
// members in turns. There the offsets are the same, and so is the place of the source in its group.
func TestMegatron(t *testing.T) {
	f, err := os.Open(filepath.Join(*recordings, "rosters.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	var head struct{ Cases int }
	require.NoError(t, lines.Decode(&head))
	require.GreaterOrEqual(t, head.Cases, 50)
	count := counts{}
	for i := range head.Cases {
		var x recordedRoster
		require.NoError(t, lines.Decode(&x))
		x.compare(t, &count)
		require.False(t, t.Failed(), "case %d", i)
	}
	require.False(t, lines.More())
	t.Logf("%+v in %d cases", count, head.Cases)
	require.Greater(t, count.plans, 3*count.turns)
	require.Positive(t, count.turns)
	require.Positive(t, count.tied)
}

// counts are the plans that were compared, those among them whose sources take turns, and the outputs that the
// embedding stands for.
type counts struct{ plans, turns, tied int }

func (x *recordedRoster) compare(t *testing.T, count *counts) {
	t.Helper()
	rosters := map[stepvan.Rank]*Roster{}
	at := func(r stepvan.Rank) *Roster {
		if rosters[r] == nil {
			rosters[r] = &Roster{Rank: r}
		}
		return rosters[r]
	}
	for i := range x.Parameters {
		p := &x.Parameters[i]
		for k := range x.Groups[p.Dst.Members] {
			m := &x.Groups[p.Dst.Members][k]
			at(m.rank).Destinations = append(at(m.rank).Destinations, p.Dst.parameter(p.Name, m))
		}
		if x.tied(p) {
			count.tied++
			continue
		}
		for k := range x.Groups[p.Src.Members] {
			m := &x.Groups[p.Src.Members][k]
			at(m.rank).Sources = append(at(m.rank).Sources, p.Src.parameter(p.Name, m))
		}
	}
	var all [][]byte
	for _, r := range rosters {
		b, err := r.Append(nil)
		require.NoError(t, err)
		all = append(all, b)
	}
	planner, err := NewPlanner(all, Options{})
	require.NoError(t, err)
	sends, recvs := 0, 0
	for rank := range rosters {
		plan, err := planner.Plan(rank)
		require.NoError(t, err)
		sends, recvs = sends+plan.Sends.Len(), recvs+plan.Recvs.Len()
		for i := range x.Parameters {
			if want, ok := x.Parameters[i].Plans[rank]; ok {
				x.comparePlan(t, &x.Parameters[i], plan, want, count)
			}
		}
	}
	require.Equal(t, recvs, sends)
}

// tied reports whether a parameter is an output whose source is the embedding. The recording does not say so, but the
// embedding's holders have the same then.
func (x *recordedRoster) tied(p *recordedParameter) bool {
	return p.Name == "output_layer.weight" && slices.ContainsFunc(x.Parameters, func(o recordedParameter) bool {
		return o.Name == "embedding.word_embeddings.weight" && o.Src.Members == p.Src.Members && slices.Equal(o.Src.Local, p.Src.Local)
	})
}

// comparePlan compares what a rank receives of a parameter.
func (x *recordedRoster) comparePlan(t *testing.T, p *recordedParameter, plan *Plan, want [][4]int64, count *counts) {
	t.Helper()
	dim := 0
	for _, s := range []*recordedSide{&p.Src, &p.Dst} {
		if s.Dim != nil {
			dim = *s.Dim
		}
	}
	var got [][4]int64
	for i := range plan.Recvs.Len() {
		if op := plan.Recvs.At(i); plan.Destinations[op.Tensor].Name == p.Name {
			got = append(got, [4]int64{int64(op.Peer), op.Theirs[dim], op.Mine[dim], op.Extent[dim]})
		}
	}
	count.plans++
	if x.copies(p, plan.Rank) == 1 && !slices.Equal(got, want) {
		count.turns++
		x.places(p, got)
		x.places(p, want)
	}
	require.Equal(t, want, got, "%s, destination %d", p.Name, plan.Rank)
}

// copies is how many data parallel groups a destination may read from.
func (x *recordedRoster) copies(p *recordedParameter, rank stepvan.Rank) int {
	place, size := -1, 0
	for _, m := range x.Groups[p.Dst.Members] {
		if m.rank == rank && m.Expert != nil {
			place, size = slices.Index(m.Expert, rank), len(m.Expert)
		}
	}
	var groups [][]stepvan.Rank
	for _, m := range x.Groups[p.Src.Members] {
		if m.Expert != nil && len(m.Expert) == size && slices.Index(m.Expert, m.rank) != place {
			continue
		}
		if !slices.ContainsFunc(groups, func(g []stepvan.Rank) bool { return slices.Equal(g, m.Data) }) {
			groups = append(groups, m.Data)
		}
	}
	return len(groups)
}

// places replaces the sources by their places in their tensor parallel groups.
func (x *recordedRoster) places(p *recordedParameter, all [][4]int64) {
	for i := range all {
		for _, m := range x.Groups[p.Src.Members] {
			if int64(m.rank) == all[i][0] {
				all[i][0] = int64(max(slices.Index(m.Tensor, m.rank), 0))
				if p.Src.Dim == nil {
					all[i][0] = 0
				}
				break
			}
		}
	}
}
