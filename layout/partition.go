package layout

import (
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Partition says how Megatron-core divides a parameter among the ranks of a tensor parallel group and, for a fused
// tensor of experts, of an expert parallel group. The zero value is a parameter that every rank has whole.
type Partition struct {
	Dim    int     // partition_dim
	Stride int     // partition_stride; 0 counts as 1
	Sizes  []int64 // partition_sizes: the blocks of one rank, divided one by one; with them Stride has no meaning
	World  int     // ranks of the tensor parallel group; 0 and 1 mean that the parameter is not divided

	ExpertDim   int // the dimension that counts experts
	ExpertWorld int // ranks of the expert parallel group that divide the experts; 0 and 1 mean that they do not
}

// Parts is how many different parts there are. The part of rank e of the expert parallel group and rank t of the tensor
// parallel group has the number e*World + t.
func (p Partition) Parts() int { return max(p.World, 1) * max(p.ExpertWorld, 1) }

// Check refuses a partition that no tensor can have. The errors are [stepvan.ErrInvalid].
func (p Partition) Check() error {
	for _, x := range []struct {
		name string
		got  int
		most int
	}{
		{"partition_dim", p.Dim, tensor.MaxRank - 1}, {"partition_stride", p.Stride, maxSpans}, {"size of the tensor parallel group", p.World, maxMesh},
		{"dimension of experts", p.ExpertDim, tensor.MaxRank - 1}, {"size of the expert parallel group", p.ExpertWorld, maxMesh},
		{"number of partition_sizes", len(p.Sizes), maxSpans}, {"number of parts", p.Parts(), maxMesh},
	} {
		if x.got < 0 || x.got > x.most {
			return errs.Invalid("layout: %s is out of range (got %d, want 0 to %d)", x.name, x.got, x.most)
		}
	}
	left := int64(maxExtent) / int64(max(p.World, 1))
	for i, size := range p.Sizes {
		if size < 0 || size > left {
			return errs.Invalid("layout: partition_sizes[%d] is out of range (got %d, want 0 to %d)", i, size, left)
		}
		left -= size
	}
	return nil
}

// CheckShape refuses a partition that a tensor of this shape cannot have. Every rank gets the same answer.
func (p Partition) CheckShape(shape tensor.Shape) error {
	if err := p.Check(); err != nil {
		return err
	}
	if err := checkShape(shape); err != nil {
		return err
	}
	cuts := p.cuts()
	for i := range cuts {
		if cuts[i].dim >= shape.Rank() {
			return errs.Invalid("layout: the partition cuts dimension %d, which a tensor of shape %s does not have", cuts[i].dim, shape)
		}
	}
	for d, n := range shape.Dims() {
		if err := checkCuts(cuts, d, n); err != nil {
			return err
		}
	}
	return nil
}

// Part is the part with this number. A length that does not divide evenly is cut as torch.chunk does.
func (p Partition) Part(shape tensor.Shape, number int) (Part, error) {
	if err := p.CheckShape(shape); err != nil {
		return Part{}, err
	}
	if number < 0 || number >= p.Parts() {
		return Part{}, errs.Invalid("layout: no part has this number (got %d, want 0 to %d)", number, p.Parts()-1)
	}
	world := max(p.World, 1)
	return build(shape, p.cuts(), []int{number / world, number % world}), nil
}

// Whole is the shape of the tensor whose parts all have the shape local.
func (p Partition) Whole(local tensor.Shape) (tensor.Shape, error) {
	if err := p.Check(); err != nil {
		return tensor.Shape{}, err
	}
	if err := checkShape(local); err != nil {
		return tensor.Shape{}, err
	}
	dims := slices.Clone(local.Dims())
	cuts := p.cuts()
	for i := range cuts {
		c := &cuts[i]
		if c.dim >= len(dims) {
			return tensor.Shape{}, errs.Invalid("layout: the partition cuts dimension %d, which a part of shape %s does not have", c.dim, local)
		}
		if dims[c.dim] > maxExtent/int64(c.count) {
			return tensor.Shape{}, errs.Invalid("layout: the whole of %d parts of shape %s is too long in dimension %d", c.count, local, c.dim)
		}
		dims[c.dim] *= int64(c.count)
	}
	return tensor.MakeShape(dims...)
}

// cuts divide by experts first, and what is left by the tensor parallel group.
func (p *Partition) cuts() (all []cut) {
	if p.ExpertWorld > 1 {
		all = append(all, cut{dim: p.ExpertDim, count: p.ExpertWorld, pieces: 1, axis: 0, step: max(p.World, 1)})
	}
	if p.World > 1 {
		c := cut{dim: p.Dim, count: p.World, pieces: max(p.Stride, 1), axis: 1, step: 1}
		if len(p.Sizes) > 0 {
			c.sizes, c.pieces = p.Sizes, 1
		}
		all = append(all, c)
	}
	return all
}

// Agree returns the shape of a parameter that both sides have, of the shapes of one part on each side. A side without
// partition_sizes gets those of the other, because Megatron-core divides both sides by blocks as soon as one is.
func Agree(src *Partition, srcLocal tensor.Shape, dst *Partition, dstLocal tensor.Shape) (tensor.Shape, error) {
	whole, err := src.Whole(srcLocal)
	if err != nil {
		return tensor.Shape{}, err
	}
	other, err := dst.Whole(dstLocal)
	if err != nil {
		return tensor.Shape{}, err
	}
	if whole != other {
		return tensor.Shape{}, mismatch(src, srcLocal, dst, dstLocal)
	}
	if len(src.Sizes) > 0 && len(dst.Sizes) == 0 {
		dst.Sizes, err = src.scaled(dst)
	} else if len(dst.Sizes) > 0 && len(src.Sizes) == 0 {
		src.Sizes, err = dst.scaled(src)
	}
	if err != nil {
		return tensor.Shape{}, err
	}
	return whole, checkBlocks(src, dst)
}

// mismatch says how the totals of both sides differ.
func mismatch(src *Partition, srcLocal tensor.Shape, dst *Partition, dstLocal tensor.Shape) error {
	return errs.Invalid("layout: size mismatch (got %d x %s in dimension %d at the source, %d x %s in dimension %d at the destination): "+
		"check partition_dim and which side is divided", max(src.World, 1), srcLocal, src.Dim, max(dst.World, 1), dstLocal, dst.Dim)
}

// scaled are the sizes of p for the parts of another partition.
func (p *Partition) scaled(other *Partition) ([]int64, error) {
	if other.World <= 1 || other.Dim != p.Dim {
		return nil, nil // the other is not divided there
	}
	sizes := make([]int64, len(p.Sizes))
	for i, size := range p.Sizes {
		total := size * int64(max(p.World, 1))
		if total%int64(other.World) != 0 {
			return nil, errs.Invalid("layout: partition_sizes[%d] cannot be divided (got %d elements in all, want a multiple of %d): "+
				"give partition_sizes on both sides", i, total, other.World)
		}
		sizes[i] = total / int64(other.World)
	}
	return sizes, nil
}

// checkBlocks refuses two sides whose blocks differ.
func checkBlocks(src, dst *Partition) error {
	if len(src.Sizes) == 0 || len(dst.Sizes) == 0 || src.Dim != dst.Dim {
		return nil
	}
	if len(src.Sizes) != len(dst.Sizes) {
		return errs.Invalid("layout: the sides have different numbers of blocks (got %d at the source, %d at the destination)",
			len(src.Sizes), len(dst.Sizes))
	}
	for i := range src.Sizes {
		a, b := max(src.World, 1), max(dst.World, 1)
		if src.Sizes[i]*int64(a) != dst.Sizes[i]*int64(b) {
			return errs.Invalid("layout: size mismatch in block %d (got %d x %d at the source, %d x %d at the destination)",
				i, a, src.Sizes[i], b, dst.Sizes[i])
		}
	}
	return nil
}
