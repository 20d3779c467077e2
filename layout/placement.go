package layout

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Kind says what a dimension of a mesh does to a tensor.
type Kind uint8

// The kinds of placements. The zero value is Replicated.
const (
	Replicated Kind = iota
	Sharded
	StridedSharded
	Reducible
)

// Op is the reduction of a [Partial] placement.
type Op uint8

// The reductions that torch.distributed.tensor has for Partial.
const (
	Sum Op = iota
	Avg
	Max
	Min
	Product
	opEnd
)

var opNames = [opEnd]string{"sum", "avg", "max", "min", "product"}

// String returns torch's name of the reduction.
func (o Op) String() string {
	if o >= opEnd {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}

// ParseOp is the inverse of [Op.String].
func ParseOp(name string) (Op, error) {
	for o, n := range opNames {
		if n == name {
			return Op(o), nil
		}
	}
	return 0, errs.Invalid("layout: unknown reduction (got %.40q, want one of %v)", name, opNames)
}

// Placement says how a tensor lies along one dimension of a mesh. It is a comparable value. Make it with [Shard],
// [Replicate], [Partial] or [StridedShard].
type Placement struct {
	Kind   Kind
	Op     Op  // of Reducible
	Dim    int // of the tensor: of Sharded and StridedSharded
	Factor int // of StridedSharded: how many shards later dimensions of the mesh make
}

// Shard cuts dimension dim of the tensor as torch.chunk does. The chunks have ceil(n/m) elements, and trailing chunks
// are shorter or empty.
func Shard(dim int) Placement { return Placement{Kind: Sharded, Dim: dim} }

// Replicate gives every rank along the dimension of the mesh the same elements.
func Replicate() Placement { return Placement{} }

// Partial means that the ranks along the dimension of the mesh have values that op still has to reduce.
func Partial(op Op) Placement { return Placement{Kind: Reducible, Op: op} }

// StridedShard cuts dimension dim into factor chunks, and each of these into one piece for each rank. Rank i has piece
// i of each chunk. Torch has it for FSDP2 over tensor parallelism. The pieces must be equal.
func StridedShard(dim, factor int) Placement {
	return Placement{Kind: StridedSharded, Dim: dim, Factor: factor}
}

// String returns a text such as "S(0)", "R", "P(sum)" or "SS(0, 2)".
func (p Placement) String() string {
	switch p.Kind {
	case Replicated:
		return "R"
	case Sharded:
		return fmt.Sprintf("S(%d)", p.Dim)
	case StridedSharded:
		return fmt.Sprintf("SS(%d, %d)", p.Dim, p.Factor)
	case Reducible:
		return fmt.Sprintf("P(%s)", p.Op)
	}
	return fmt.Sprintf("Kind(%d)", uint8(p.Kind))
}

// check holds a placement against what any tensor allows.
func (p Placement) check() error {
	switch p.Kind {
	case Replicated:
		return nil
	case Reducible:
		if p.Op >= opEnd {
			return errs.Invalid("layout: unknown reduction %d: use one of %v", uint8(p.Op), opNames)
		}
		return nil
	case StridedSharded:
		if p.Factor < 1 || p.Factor > maxSpans {
			return errs.Invalid("layout: factor of %s is out of range (got %d, want 1 to %d)", p, p.Factor, maxSpans)
		}
	case Sharded:
	default:
		return errs.Invalid("layout: unknown kind of placement %d", uint8(p.Kind))
	}
	if p.Dim < 0 || p.Dim >= tensor.MaxRank {
		return errs.Invalid("layout: dimension of %s is out of range (got %d, want 0 to %d): count from the front",
			p, p.Dim, tensor.MaxRank-1)
	}
	return nil
}
