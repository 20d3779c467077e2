package reshard

import (
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// route is how one destination gets parameters that have the same sources and the same form.
type route struct {
	moves layout.Moves
	wire  tensor.DType // of the sources
	// whole has the bits of the dimensions that neither side divides.
	whole  uint8
	shares []share // of the moves: see Planner.shares
}

// route finds the moves of a parameter.
func (p *Planner) route(o *origin, dst stepvan.Rank, f *Form) (*route, error) {
	if f.Parallel != nil && o.parallel() {
		return p.byGroups(o, dst, f)
	}
	return p.byParts(o, dst, f)
}

// side is one side of a parameter with the attributes of Megatron-core.
type side struct {
	partition layout.Partition
	local     *Form
	whole     tensor.Shape
}

// byGroups plans by the rule of data parallel groups.
func (p *Planner) byGroups(o *origin, dst stepvan.Rank, f *Form) (*route, error) {
	groups, err := o.dataGroups()
	if err != nil {
		return nil, err
	}
	member := f.Parallel.member(dst)
	one, err := groups.Sources(&member, &layout.Partition{})
	if err != nil {
		return nil, err
	}
	chosen := o.form(one.Ranks[0])
	partition, to := chosen.Parallel.partition(), f.Parallel.partition()
	number := 0
	if f.Parallel.Divided {
		number = f.Parallel.place(dst)
	}
	if chosen.Parallel.fused() != f.Parallel.fused() {
		if err := fuse(&partition, chosen); err != nil {
			return nil, err
		}
		if err := fuse(&to, f); err != nil {
			return nil, err
		}
		if to.ExpertWorld > 1 {
			number += slices.Index(member.Expert, dst) * max(to.World, 1)
		}
	}
	sources, err := groups.Sources(&member, &partition)
	if err != nil {
		return nil, err
	}
	from, err := o.gather(sources.Ranks, partition)
	if err != nil {
		return nil, err
	}
	if err := from.agree(&to, number, f); err != nil {
		return nil, err
	}
	r := &route{whole: undivided(f.Shape.Rank(), chosen.Parallel.Divided, &from.partition, f.Parallel.Divided, &to)}
	if r.wire, err = p.wire(from.local, f); err != nil {
		return nil, err
	}
	pair, err := p.pair(from.whole, &from.partition, &to)
	if err != nil {
		return nil, err
	}
	p.moves.Reset()
	if err := pair.Assign(number, sources, &p.moves); err != nil {
		return nil, err
	}
	r.moves = p.moves.Clone()
	return r, nil
}

// fused is how many ranks share the experts of a fused tensor. It is 1 for all other parameters.
func (p *Parallel) fused() int {
	if !p.Expert || p.Indexed {
		return 1
	}
	return max(len(p.Groups.Expert), 1)
}

// place is the place of a rank in its tensor parallel group.
func (p *Parallel) place(r stepvan.Rank) int { return max(slices.Index(p.Tensor, r), 0) }

// fuse tells the partition that the first dimension of a tensor counts experts, which the expert parallel group
// divides.
func fuse(to *layout.Partition, f *Form) error {
	n := f.Parallel.fused()
	if n > 1 && f.Shape.Dim(0)*int64(n) != int64(f.Parallel.Experts) {
		return errs.Invalid("reshard: expert parallel groups of the sides differ in size, and no dimension counts the experts (got shape %s at one of %d ranks with %d experts): "+
			"give each expert a tensor with its number in the name, as weight3, or make the first dimension count them", f.Shape, n, f.Parallel.Experts)
	}
	to.ExpertWorld = n
	return nil
}

// source is the side of the copy that a source belongs to.
func (o *origin) source(r stepvan.Rank, partition layout.Partition) (*side, error) {
	ranks := o.form(r).Parallel.Tensor
	if partition.World <= 1 {
		ranks = []stepvan.Rank{r}
	}
	return o.gather(ranks, partition)
}

// gather finds the shape of the whole parameter from what the ranks of one copy have. Part i is at ranks[i].
func (o *origin) gather(ranks []stepvan.Rank, partition layout.Partition) (*side, error) {
	s := &side{partition: partition}
	even := true
	for _, r := range ranks {
		f := o.form(r)
		if f == nil {
			return nil, errs.Invalid("reshard: a source is missing: rank %d of group %v does not have the parameter", r, ranks)
		}
		if s.local == nil {
			s.local = f
		}
		if f.DType != s.local.DType || f.Shape.Rank() != s.local.Shape.Rank() {
			return nil, errs.Invalid("reshard: ranks of one copy differ (got %s%s at rank %d, %s%s at rank %d): give all the same type and dimensions",
				s.local.DType, s.local.Shape, ranks[0], f.DType, f.Shape, r)
		}
		even = even && f.Shape == s.local.Shape
	}
	var err error
	if even {
		s.whole, err = partition.Whole(s.local.Shape)
		return s, err
	}
	return s, o.sum(s, ranks)
}

// sum finds the shape of a parameter whose ranks have parts of different lengths.
func (o *origin) sum(s *side, ranks []stepvan.Rank) error {
	world := max(s.partition.World, 1)
	dims := slices.Clone(s.local.Shape.Dims())
	if max(s.partition.Dim, s.partition.ExpertDim) >= len(dims) {
		return errs.Invalid("reshard: partition_dim is out of range (got %d for shape %s): count the dimensions from 0", s.partition.Dim, s.local.Shape)
	}
	for i := 1; i < len(ranks); i++ {
		shape := o.form(ranks[i]).Shape
		if i < world {
			dims[s.partition.Dim] += shape.Dim(s.partition.Dim)
		}
		if i%world == 0 {
			dims[s.partition.ExpertDim] += shape.Dim(s.partition.ExpertDim)
		}
	}
	var err error
	if s.whole, err = tensor.MakeShape(dims...); err != nil {
		return err
	}
	for i, r := range ranks {
		part, err := s.partition.Part(s.whole, i)
		if err != nil {
			return err
		}
		if got := o.form(r).Shape; part.Local() != got {
			return errs.Invalid("reshard: a source has another share of %s than its place %d of %d (got %s at rank %d, want %s): divide it as torch.chunk does",
				s.whole, i, len(ranks), got, r, part.Local())
		}
	}
	return nil
}

// agree checks that what a destination has is its part of the whole.
func (s *side) agree(to *layout.Partition, number int, f *Form) error {
	if len(s.partition.Sizes)+len(to.Sizes) > 0 {
		_, err := layout.Agree(&s.partition, s.local.Shape, to, f.Shape)
		return err
	}
	part, err := to.Part(s.whole, number)
	if err != nil {
		return err
	}
	if part.Local() != f.Shape {
		return errs.Invalid("reshard: size mismatch (got %d x %s in dimension %d at the source, %d x %s in dimension %d at the destination): "+
			"check partition_dim and which side is divided", max(s.partition.World, 1), s.local.Shape, s.partition.Dim, max(to.World, 1), f.Shape, to.Dim)
	}
	return nil
}

// undivided has the bits of the dimensions that neither side divides. A dimension that a side calls divided counts as
// that, however small its group is.
func undivided(dims int, divided bool, from *layout.Partition, to bool, at *layout.Partition) uint8 {
	all := uint8(1<<dims - 1)
	if divided {
		all &^= 1 << from.Dim
	}
	if to {
		all &^= 1 << at.Dim
	}
	if max(from.ExpertWorld, at.ExpertWorld) > 1 {
		all &^= 1<<from.ExpertDim | 1<<at.ExpertDim
	}
	return all
}

// wire is the type in which a parameter travels: that of its sources.
func (p *Planner) wire(src, dst *Form) (tensor.DType, error) {
	if src.DType != dst.DType && !p.options.Cast && (!src.Buffer || !dst.Buffer) {
		return 0, errs.Invalid("reshard: type mismatch (got %s at the source, %s at the destination): give both the same type, or allow a cast",
			src.DType, dst.DType)
	}
	return src.DType, nil
}

// pair is the planner between two partitions of a shape.
func (p *Planner) pair(whole tensor.Shape, from, to *layout.Partition) (*layout.Planner, error) {
	key := append(p.key[:0], byte(whole.Rank()))
	for _, n := range whole.Dims() {
		key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
	}
	var divisions [2]*layout.Division
	var err error
	for _, x := range []*layout.Partition{from, to} {
		if key, err = x.Append(key); err != nil {
			return nil, err
		}
	}
	if p.key = key; p.pairs[string(key)] != nil {
		return p.pairs[string(key)], nil
	}
	for i, x := range []*layout.Partition{from, to} {
		if divisions[i], err = x.Divide(whole); err != nil {
			return nil, err
		}
	}
	made, err := layout.NewPlanner(divisions[0], divisions[1])
	if err == nil {
		p.pairs[string(key)] = made
	}
	return made, err
}

// byParts plans from whatever ranks have the elements.
func (p *Planner) byParts(o *origin, dst stepvan.Rank, f *Form) (*route, error) {
	sources, err := o.byPart()
	if err != nil {
		return nil, err
	}
	first, err := o.part(o.ranks[0], o.forms[0])
	if err != nil {
		return nil, err
	}
	part, err := partOf(dst, f, first.Shape())
	if err != nil {
		return nil, err
	}
	r := &route{whole: uint8(1<<f.Shape.Rank() - 1)}
	for i, other := range o.forms {
		if other.DType != o.forms[0].DType {
			return nil, errs.Invalid("reshard: sources differ in type (got %s at rank %d, %s at rank %d): give all the same type",
				o.forms[0].DType, o.ranks[0], other.DType, o.ranks[i])
		}
		r.whole &= equalDims(other.Shape, first.Shape())
	}
	r.whole &= equalDims(f.Shape, first.Shape())
	if r.wire, err = p.wire(o.forms[0], f); err != nil {
		return nil, err
	}
	p.moves.Reset()
	if err := sources.Assign(part, dst, int(dst), &p.moves); err != nil {
		return nil, err
	}
	r.moves = p.moves.Clone()
	return r, nil
}

// partOf is the part of a destination of a parameter of this shape.
func partOf(dst stepvan.Rank, f *Form, whole tensor.Shape) (*layout.Part, error) {
	part := f.Part
	switch {
	case part != nil:
	case f.Parallel != nil:
		number := 0
		if f.Parallel.Divided {
			number = f.Parallel.place(dst)
		}
		own, err := f.Parallel.partition().Part(whole, number)
		if err != nil {
			return nil, err
		}
		part = &own
	default:
		own, err := layout.Whole(whole)
		if err != nil {
			return nil, err
		}
		part = &own
	}
	if part.Local() != f.Shape || part.Shape() != whole {
		return nil, errs.Invalid("reshard: size mismatch (got a whole of %s at the sources, and %s as a part of %s at the destination): "+
			"both sides need the same whole", whole, f.Shape, part.Shape())
	}
	return part, nil
}

// equalDims has the bits of the dimensions in which two shapes are equal.
func equalDims(a, b tensor.Shape) (bits uint8) {
	for d := range a.Rank() {
		if a.Dim(d) == b.Dim(d) {
			bits |= 1 << d
		}
	}
	return bits
}
