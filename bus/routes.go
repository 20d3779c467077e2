package bus

import (
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Redistribute plans how a tensor of a shape moves from one layout to another. The ranks of both layouts are indices of
// their meshes: [layout.Route.Source] is one of from, and [layout.Landing.Rank] one of to.
//
// Each box of target t comes from one of S sources. Where several have copies of the box, the coordinates of index
// t mod S choose among them. Routes are ordered by source and
// box, and a box that several targets need is one route.
//
// A partial source has a share of the boxes that its group has. It reduces them before it ships them.
// A partial target is refused. The errors are [stepvan.ErrInvalid].
func Redistribute(from, to layout.Layout, shape tensor.Shape) ([]layout.Route, error) {
	from.Mesh.Ranks, to.Mesh.Ranks = nil, nil
	plan, err := layout.Redistribute(from, to, shape)
	if err != nil {
		return nil, err
	}
	all := make([]layout.Receiver, to.Mesh.Size())
	for t := range all {
		all[t] = layout.Receiver{Rank: stepvan.Rank(t), Moves: new(layout.Moves)}
		if err := plan.Assign(t, from.Sources(t), all[t].Moves); err != nil {
			return nil, err
		}
	}
	return layout.Routes(all)
}

// wholeShape finds the shape of a tensor from the parts that the ranks of a layout have. It refuses parts that do not
// make a tensor together: the error names the first rank whose part is another one.
func wholeShape(l layout.Layout, parts []tensor.Shape) (tensor.Shape, error) {
	if err := sameDimensions(parts); err != nil {
		return tensor.Shape{}, err
	}
	dims := slices.Clone(parts[0].Dims())
	for d := range dims {
		n, err := wholeExtent(&l, parts, d)
		if err != nil {
			return tensor.Shape{}, err
		}
		dims[d] = n
	}
	shape, err := tensor.MakeShape(dims...)
	if err != nil {
		return tensor.Shape{}, err
	}
	for i, have := range parts {
		p, err := l.Part(shape, i)
		if err != nil {
			return tensor.Shape{}, err
		}
		if p.Local() != have {
			return tensor.Shape{}, errs.Invalid("rank %d has %s of a tensor %s in layout %s (want %s): give each rank its part", i, have, shape, l, p.Local())
		}
	}
	return shape, nil
}

func sameDimensions(parts []tensor.Shape) error {
	for i, s := range parts {
		if s.Rank() != parts[0].Rank() {
			return errs.Invalid("rank 0 has %s and rank %d has %s: give all ranks parts of one tensor", parts[0], i, s)
		}
	}
	return nil
}

// wholeExtent adds up the parts along one dimension of the tensor. It takes the ranks that differ from rank 0 only in
// the coordinates that cut it.
func wholeExtent(l *layout.Layout, parts []tensor.Shape, dim int) (n int64, err error) {
	for i := range parts {
		at := l.Mesh.Coordinates(i)
		first := true
		for axis, p := range l.Placements {
			cuts := (p.Kind == layout.Sharded || p.Kind == layout.StridedSharded) && p.Dim == dim
			first = first && (cuts || at[axis] == 0)
		}
		if first {
			if n += parts[i].Dim(dim); n > 1<<62 || n < 0 {
				return 0, errs.Invalid("dimension %d of the parts is too long together (got %d)", dim, n)
			}
		}
	}
	return n, nil
}

// wireType is the type in which elements travel: the narrower one, or the type of the source if both have one size. It
// is 0 if both types are the same. It refuses types between which nothing converts.
func wireType(from, to tensor.DType) (tensor.DType, error) {
	switch {
	case from == to:
		return 0, nil
	case !convertible(from) || !convertible(to):
		return 0, errs.Invalid("%s cannot become %s: give both sides one type, or floats", from, to)
	case to.Size() < from.Size():
		return to, nil
	}
	return from, nil
}

// convertible reports whether package cast knows a type.
func convertible(d tensor.DType) bool {
	switch d {
	case tensor.Float64, tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float8E4M3FN, tensor.Float8E5M2:
		return true
	}
	return false
}

// reduction is how a partial source reduces a box. It begins with the values of all members, in mesh order. Each step
// merges a list of values into a list of n values. Its value k merges values k, k+n, k+2n and so on, in that order. The
// last step leaves one value.
type reduction struct {
	members []int // indices of the ranks, in the order of the mesh
	steps   []reductionStep
	divisor int // of the result, for averages; 1: none
}

type reductionStep struct {
	op    layout.Op // Sum, Max, Min or Product
	count int       // how many values become one
}

// reductionOf says how the rank at index of a partial layout reduces. ok is false if the layout is not partial. Sums
// and averages are one step, and so are dimensions with one operation. Otherwise the outermost dimension comes first.
func reductionOf(l *layout.Layout, index int) (r reduction, ok bool) {
	g := l.Reduction(index)
	if g.Ops == nil {
		return r, false
	}
	r = reduction{members: g.Members, divisor: 1}
	for i, op := range g.Ops {
		if op == layout.Avg {
			op = layout.Sum
			r.divisor *= g.Counts[i]
		}
		if n := len(r.steps); n > 0 && r.steps[n-1].op == op {
			r.steps[n-1].count *= g.Counts[i]
			continue
		}
		r.steps = append(r.steps, reductionStep{op, g.Counts[i]})
	}
	return r, true
}

// checkReduction refuses reductions of a type that package cast does not have.
func checkReduction(l *layout.Layout, d tensor.DType) error {
	for _, p := range l.Placements {
		if p.Kind != layout.Reducible {
			continue
		}
		if d == tensor.Bool || d.Size() == 0 || !convertible(d) && (p.Op == layout.Avg || !integer(d)) {
			return errs.Invalid("%s of %s: there is no such reduction: use floats", p, d)
		}
	}
	return nil
}

func integer(d tensor.DType) bool { return d >= tensor.Uint8 && d <= tensor.Int64 }

//
