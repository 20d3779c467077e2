package reshard

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/layout"
	"github.com/stepvan/stepvan/tensor"
)

// Parameter is a tensor of a model as one rank has it: a parameter, or a persistent buffer.
type Parameter struct {
	Name     string // in the model of this rank
	Resolved string // the same at every rank: see [Names]; "" stands for Name
	Form
}

// Form says what a rank has of a parameter. With Parallel it is the part that Megatron-core gives the rank. With Part
// it is that part. With neither the rank has all of it.
type Form struct {
	DType    tensor.DType
	Shape    tensor.Shape // of what this rank has
	Buffer   bool         // a persistent buffer, whose type may differ between the sides
	Parallel *Parallel
	Part     *layout.Part
}

// Parallel has the attributes that Megatron-core gives a parameter, and the groups of its rank. Groups name their ranks
// in the group's order. A group that is nil stands for the rank alone.
type Parallel struct {
	Divided bool    // tensor_model_parallel: the ranks of Tensor divide it
	Dim     int     // partition_dim
	Stride  int     // partition_stride
	Sizes   []int64 // partition_sizes
	Expert  bool    // it belongs to experts: the attribute allreduce is False
	Indexed bool    // it belongs to one expert, whose number is in Resolved
	Experts int     // num_experts
	Groups
}

// Groups are the parallel groups of a rank. Parameters share the slices.
type Groups struct {
	Tensor []stepvan.Rank // tensor_parallel_group_ranks
	Data   []stepvan.Rank // data_parallel_group_ranks
	Expert []stepvan.Rank // expert_parallel_group_ranks; nil for a parameter that is not an expert's
}

// Check refuses a form that no parameter can have. The errors are [stepvan.ErrInvalid].
func (f *Form) Check() error {
	switch {
	case !f.DType.Valid():
		return errs.Invalid("reshard: the type does not exist (got %d): use one of package tensor", uint8(f.DType))
	case !f.Shape.Valid():
		return errs.Invalid("reshard: the shape is invalid: make it with tensor.MakeShape, which says why")
	case f.Parallel != nil && f.Part != nil:
		return errs.Invalid("reshard: the form has both attributes and a part: give one of them")
	case f.Part != nil && f.Part.Local() != f.Shape:
		return errs.Invalid("reshard: the part and its tensor differ in shape (got %s for a part of %s)", f.Shape, f.Part.Local())
	case f.Parallel != nil:
		return f.Parallel.check()
	}
	return nil
}

func (p *Parallel) check() error {
	if p.Experts < 0 || p.Experts > maxExperts {
		return errs.Invalid("reshard: number of experts is out of range (got %d, want 0 to %d)", p.Experts, maxExperts)
	}
	if p.Expert && p.Groups.Expert == nil {
		return errs.Invalid("reshard: a parameter of experts has no expert parallel group: give expert_parallel_group_ranks")
	}
	return layout.Partition{Dim: p.Dim, Stride: p.Stride, Sizes: p.Sizes}.Check()
}

// maxExperts bounds what a roster may claim.
const maxExperts = 1 << 20

// member is the rank as the rule for sources needs it.
func (p *Parallel) member(rank stepvan.Rank) layout.Member {
	m := layout.Member{Rank: rank, Tensor: p.Tensor, Data: p.Data}
	if p.Expert {
		m.Expert = p.Groups.Expert
	}
	return m
}

// partition is how the tensor parallel group divides the parameter.
func (p *Parallel) partition() layout.Partition {
	if !p.Divided {
		return layout.Partition{}
	}
	return layout.Partition{Dim: p.Dim, Stride: p.Stride, Sizes: p.Sizes, World: max(len(p.Tensor), 1)}
}
