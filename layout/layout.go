package layout

import (
	"fmt"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Layout says how a tensor lies on a mesh, as torch.distributed.tensor does: one placement for each dimension of the
// mesh. They apply from left to right, so a second Shard of the same dimension of the tensor cuts the shards of the
// first.
type Layout struct {
	Mesh       Mesh
	Placements []Placement
}

// Check refuses a layout that no tensor can have. The errors are [stepvan.ErrInvalid].
func (l Layout) Check() error {
	if err := l.Mesh.Check(); err != nil {
		return err
	}
	if len(l.Placements) != len(l.Mesh.Dims) {
		return errs.Invalid("layout: placements and dimensions of the mesh differ in number (got %v for mesh %v, want %d)",
			l.Placements, l.Mesh.Dims, len(l.Mesh.Dims))
	}
	for _, p := range l.Placements {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckShape refuses a layout that a tensor of this shape cannot have. Every rank gets the same answer.
func (l Layout) CheckShape(shape tensor.Shape) error {
	if err := l.Check(); err != nil {
		return err
	}
	if err := checkShape(shape); err != nil {
		return err
	}
	for _, p := range l.Placements {
		if p.cuts() && p.Dim >= shape.Rank() {
			return errs.Invalid("layout: %s cuts a dimension that a tensor of shape %s does not have (want at most %d)",
				p, shape, shape.Rank()-1)
		}
	}
	cuts := l.cuts()
	for d, n := range shape.Dims() {
		if err := checkCuts(cuts, d, n); err != nil {
			return fmt.Errorf("%w, in layout %s of a tensor of shape %s", err, l, shape)
		}
	}
	return nil
}

// CheckTarget refuses a layout that nothing can be sent to, because its values are partial.
func (l Layout) CheckTarget() error {
	for i, p := range l.Placements {
		if p.Kind == Reducible {
			return errs.Invalid("layout: a target cannot be partial (got %s at dimension %d of mesh %v): use Replicate or Shard there",
				p, i, l.Mesh.Dims)
		}
	}
	return nil
}

// Part is what the rank at index has of a tensor. A partial tensor has the same part as a replicated one.
func (l Layout) Part(shape tensor.Shape, index int) (Part, error) {
	if err := l.CheckShape(shape); err != nil {
		return Part{}, err
	}
	if err := l.checkIndex(index); err != nil {
		return Part{}, err
	}
	return build(shape, l.cuts(), l.Mesh.Coordinates(index)), nil
}

func (l Layout) checkIndex(index int) error {
	if index < 0 || index >= l.Mesh.Size() {
		return errs.Invalid("layout: index is not one of mesh %v (got %d, want 0 to %d)", l.Mesh.Dims, index, l.Mesh.Size()-1)
	}
	return nil
}

// cuts are what the placements do, in the order of the mesh.
func (l *Layout) cuts() []cut {
	all := make([]cut, 0, len(l.Placements))
	for i, p := range l.Placements {
		if p.cuts() {
			c := cut{dim: p.Dim, count: l.Mesh.Dims[i], pieces: 1, axis: i, step: l.Mesh.step(i)}
			if p.Kind == StridedSharded {
				c.pieces, c.equal = p.Factor, true
			}
			all = append(all, c)
		}
	}
	return all
}

func (p Placement) cuts() bool { return p.Kind == Sharded || p.Kind == StridedSharded }

// shares are the cuts by which the ranks of a partial tensor divide the work of reducing and sending it. The parts that
// they have in memory stay whole. Dimension dim of the tensor is divided.
func (l *Layout) shares(dim int) (all []cut) {
	for i, p := range l.Placements {
		if p.Kind == Reducible {
			all = append(all, cut{dim: dim, count: l.Mesh.Dims[i], pieces: 1, axis: i, step: l.Mesh.step(i), spread: true})
		}
	}
	return all
}

// String returns a text such as "(2, 4)[S(0), R]".
func (l Layout) String() string {
	dims, placements := make([]string, len(l.Mesh.Dims)), make([]string, len(l.Placements))
	for i, n := range l.Mesh.Dims {
		dims[i] = fmt.Sprint(n)
	}
	for i, p := range l.Placements {
		placements[i] = p.String()
	}
	return "(" + strings.Join(dims, ", ") + ")[" + strings.Join(placements, ", ") + "]"
}
