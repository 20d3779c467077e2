package peer

import (
	"github.com/stepvan/stepvan/internal/cast"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Merge says what becomes of the elements that several receives of a [Plan] bring to the same place.
type Merge uint8

// These are the merges. The numbers are part of what peers tell each other, so their meaning never changes.
const (
	Overwrite Merge = 0 // a receive has its destination for itself
	Sum       Merge = 1
	Avg       Merge = 2 // the sum, divided by the number of receives
	Max       Merge = 3
	Min       Merge = 4
	Product   Merge = 5
)

const mergeEnd = Product + 1

// merges is indexed by Merge. A mean is a sum until its end.
var merges = [mergeEnd]struct {
	name string
	cast cast.Merge
}{
	Overwrite: {"overwrite", cast.Overwrite},
	Sum:       {"sum", cast.Sum},
	Avg:       {"avg", cast.Sum},
	Max:       {"max", cast.Max},
	Min:       {"min", cast.Min},
	Product:   {"product", cast.Product},
}

// String returns the name of the merge.
func (m Merge) String() string {
	if m >= mergeEnd {
		return "no merge"
	}
	return merges[m].name
}

// conversion is how elements of one type become those of another one on their way, and what the receiver does with
// them. It is a value without state.
type conversion struct {
	src, wire, dst tensor.DType // at the sender, on the way, and at the receiver
	merge          Merge
	out            cast.Kernel // from the sender to the way
	in             cast.Kernel // from the way to the receiver
	all            cast.Kernel // from the sender to the receiver, where one of them sees the memory of the other
	next           cast.Kernel // from the way into what the receiver has, with a merge
}

// plain reports whether the elements stay as they are.
func (c *conversion) plain() bool { return c.src == c.dst }

// newConversion returns the conversion between two types. wire is the type on the way, or 0 where both are equal. The
// error is [stepvan.ErrInvalid] for types without a conversion.
func newConversion(src, wire, dst tensor.DType, merge Merge) (c conversion, err error) {
	if wire == 0 {
		wire = src
	}
	if wire != src && wire != dst {
		return c, errs.Invalid("elements of %s cannot travel to %s as %s: give Wire one of the two types", src, dst, wire)
	}
	c = conversion{src: src, wire: wire, dst: dst, merge: merge}
	for _, k := range []struct {
		kernel   *cast.Kernel
		to, from tensor.DType
		merge    Merge
	}{{&c.out, wire, src, Overwrite}, {&c.in, dst, wire, Overwrite}, {&c.all, dst, src, Overwrite}, {&c.next, dst, wire, merge}} {
		if *k.kernel, err = cast.New(k.to, k.from, merges[k.merge].cast); err != nil {
			return c, err
		}
	}
	if merge == Avg {
		_, err = cast.NewDivision(dst, 1)
	}
	return c, err
}
