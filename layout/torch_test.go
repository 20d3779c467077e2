package layout

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// recordedPair is a tensor in two layouts, as torch.distributed.tensor lays it out. Refused stands alone: it has a
// StridedShard that is uneven, on which versions of torch differ.
type recordedPair struct {
	Shape    []int64
	From, To recordedLayout
	Reduced  []int64 // the whole of a partial source, for the values that value gives its ranks
	Refused  *recordedLayout
}

type recordedLayout struct {
	Mesh       []int
	Ranks      []stepvan.Rank
	Placements [][]any
	Parts      []recordedPart
	Of         []int // the part of each index of the mesh
}

// recordedPart has its shape, and runs of indices of each dimension unless it is empty.
type recordedPart struct {
	Local []int64
	Spans [][][2]int64
}

// TestTorch compares with what torch.distributed.tensor made of random pairs of layouts: in one process, and between
// processes that use gloo. Each rank has the same part. What moves from the parts of one layout makes up those of the
// other, and every element is written once.
func TestTorch(t *testing.T) {
	for name, least := range map[string]int{"layouts.jsonl": 200, "gloo.jsonl": 100} {
		t.Run(name, func(t *testing.T) {
			moved, reduced := 0, 0
			eachCase(t, name, least, func(i int, x *recordedPair) {
				if x.Refused != nil {
					l := x.Refused.layout()
					require.ErrorIs(t, l.CheckShape(shapeOf(t, x.Shape)), stepvan.ErrInvalid, "case %d", i)
					return
				}
				x.From.compare(t, x.Shape)
				x.To.compare(t, x.Shape)
				x.move(t)
				moved++
				if x.Reduced != nil {
					x.reduce(t)
					reduced++
				}
			})
			require.Greater(t, moved, least*9/10)
			require.Equal(t, name == "gloo.jsonl", reduced > 0)
		})
	}
}

func (r *recordedLayout) layout() Layout {
	l := Layout{Mesh: Mesh{Dims: r.Mesh, Ranks: r.Ranks}}
	for _, p := range r.Placements {
		l.Placements = append(l.Placements, placementOf(p))
	}
	return l
}

func placementOf(text []any) Placement {
	number := func(i int) int { return int(text[i].(float64)) }
	switch text[0] {
	case "S":
		return Shard(number(1))
	case "SS":
		return StridedShard(number(1), number(2))
	case "P":
		return Partial(Op(slices.Index(opNames[:], text[1].(string))))
	}
	return Replicate()
}

// compare holds the parts of all ranks against torch's.
func (r *recordedLayout) compare(t *testing.T, shape []int64) {
	t.Helper()
	l := r.layout()
	require.Len(t, r.Of, l.Mesh.Size())
	for index, of := range r.Of {
		p, err := l.Part(shapeOf(t, shape), index)
		require.NoError(t, err)
		local := p.Local()
		require.Equal(t, r.Parts[of].Local, local.Dims(), "%s of %v, index %d", l, shape, index)
		for d, want := range r.Parts[of].Spans {
			var got [][2]int64
			for _, s := range p.Spans(d) {
				got = append(got, [2]int64{s.Start, s.Stop})
			}
			require.Equal(t, want, got, "%s of %v, index %d", l, shape, index)
		}
	}
}

// array is the memory of a part.
func (p *recordedPart) array(shape []int64) array {
	if p.Spans == nil {
		return array{dims: p.Local, values: []int64{}}
	}
	lists := make([][]int64, len(shape))
	for d, runs := range p.Spans {
		for _, run := range runs {
			for i := run[0]; i < run[1]; i++ {
				lists[d] = append(lists[d], i)
			}
		}
	}
	return filled(lists, shape)
}

// move writes every part of the target from torch's parts of the source, and compares it with torch's.
func (x *recordedPair) move(t *testing.T) {
	t.Helper()
	from, to := x.From.layout(), x.To.layout()
	plan, err := Redistribute(from, to, shapeOf(t, x.Shape))
	require.NoError(t, err)
	parts := make([]array, len(x.From.Parts))
	for i := range parts {
		parts[i] = x.From.Parts[i].array(x.Shape)
	}
	sources := map[stepvan.Rank]*array{}
	for index, of := range x.From.Of {
		sources[from.Mesh.Rank(index)] = &parts[of]
	}
	for target, of := range x.To.Of {
		var m Moves
		require.NoError(t, plan.Assign(target, from.Sources(target), &m))
		want := x.To.Parts[of].array(x.Shape)
		got := array{dims: want.dims, values: slices.Repeat([]int64{-1}, len(want.values))}
		for i := range m.Len() {
			v := m.At(i)
			write(t, &v, sources[v.Source], &got)
		}
		require.Equal(t, want.values, got.values, "%s to %s of %v, target %d", from, to, x.Shape, target)
	}
}

// value is what a rank has of element id of a partial tensor. The ranks that are reduced together have numbers.
// Function values of scripts/oracle/record_gloo.py is the same.
func value(id, number int64, ops []Op) int64 {
	v := 1 + (7*number+3*id+number*id)%5
	if slices.Contains(ops, Avg) {
		v *= 144
	}
	return v
}

// reduce does what [Layout.Reduction] says at each rank, and compares with torch's full_tensor.
func (x *recordedPair) reduce(t *testing.T) {
	t.Helper()
	from := x.From.layout()
	for index := range from.Mesh.Size() {
		r := from.Reduction(index)
		for id, want := range x.Reduced {
			var values []int64
			for _, m := range r.Members {
				number := int64(0)
				for i, c := range from.Mesh.Coordinates(m) {
					if from.Placements[i].Kind == Reducible {
						number = number*int64(from.Mesh.Dims[i]) + int64(c)
					}
				}
				values = append(values, value(int64(id), number, r.Ops))
			}
			require.Equal(t, want, reduced(values, r), "%s of %v, element %d at index %d", from, x.Shape, id, index)
		}
	}
}

// reduced reduces the values of the members, the outermost dimension first.
func reduced(values []int64, r Reduction) int64 {
	for i, op := range r.Ops {
		rest := len(values) / r.Counts[i]
		into := values[:rest]
		for k, v := range values[rest:] {
			switch op {
			case Sum, Avg:
				into[k%rest] += v
			case Max:
				into[k%rest] = max(into[k%rest], v)
			case Min:
				into[k%rest] = min(into[k%rest], v)
			case Product:
				into[k%rest] *= v
			}
		}
		for k := range into {
			if op == Avg {
				into[k] /= int64(r.Counts[i])
			}
		}
		values = into
	}
	return values[0]
}
