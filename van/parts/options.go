package parts

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Number is an option that is a number. 0 stands for its default.
type Number struct {
	Name        string
	Value       *int
	Default     int
	Least, Most int
	PowerOfTwo  bool
}

// Complete puts defaults into the options of a van. It refuses a missing Placer, and numbers that are out of bounds.
func Complete(van string, p van.Placer, l *wire.Limits, numbers ...Number) error {
	if p == nil {
		return errs.Invalid("%s: Options.Placer: missing: give what names the memory for received payload", van)
	}
	if *l == (wire.Limits{}) {
		*l = wire.DefaultLimits
	}
	for _, n := range numbers {
		if *n.Value == 0 {
			*n.Value = n.Default
		} else if v := *n.Value; v < n.Least || v > n.Most || n.PowerOfTwo && v&(v-1) != 0 {
			want := fmt.Sprintf("%d to %d", n.Least, n.Most)
			if n.PowerOfTwo {
				want = "a power of two from " + want
			}
			return errs.Invalid("%s: Options.%s: out of bounds (got %d, want %s, or 0 for the default)", van, n.Name, v, want)
		}
	}
	return nil
}
