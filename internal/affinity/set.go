package affinity

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// MaxCores is the most cores that a Set can name: the most that Linux can be built for.
const MaxCores = 8192

// Set is a set of cores. The zero value is empty. Sets are values: no method changes one.
type Set struct{ words []uint64 }

// Range is the set of n cores from first on. It leaves out negative numbers and cores from MaxCores
// on.
func Range(first, n int) Set {
	var s Set
	for c := max(0, first); c < min(first+n, MaxCores); c++ {
		s.add(c)
	}
	return s
}

// Parse reads a list as the kernel writes it: numbers and ranges with commas between them, "0-3,8,10-11".
// White space around it is allowed; an empty list is the empty set. The error is a stepvan.ErrInvalid
// that names the part which is wrong.
func Parse(list string) (Set, error) {
	var s Set
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := core(from)
		last := first
		if err == nil && isRange {
			last, err = core(to)
		}
		if err != nil {
			return Set{}, errs.Invalid("list of cores %q: %q: %v", text.Cut(list), text.Cut(part), err)
		}
		if last < first {
			return Set{}, errs.Invalid("list of cores %q: %q: the range runs backwards", text.Cut(list), text.Cut(part))
		}
		for c := first; c <= last; c++ {
			s.add(c)
		}
	}
	return s, nil
}

func core(digits string) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n >= MaxCores {
		return 0, fmt.Errorf("%q is not a core from 0 to %d", text.Cut(digits), MaxCores-1)
	}
	return int(n), nil
}

func (s *Set) add(c int) {
	for len(s.words) <= c/64 {
		s.words = append(s.words, 0)
	}
	s.words[c/64] |= 1 << (c % 64)
}

// Has reports whether core c is in the set.
func (s Set) Has(c int) bool { return c >= 0 && c/64 < len(s.words) && s.words[c/64]>>(c%64)&1 != 0 }

// Len is the number of cores.
func (s Set) Len() (n int) {
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Cores lists them in order.
func (s Set) Cores() []int {
	list := make([]int, 0, s.Len())
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			list = append(list, i*64+bits.TrailingZeros64(w))
		}
	}
	return list
}

// And is the set of cores in both sets.
func (s Set) And(o Set) Set { return s.merge(o, func(a, b uint64) uint64 { return a & b }) }

// Or is the set of cores in one of the sets.
func (s Set) Or(o Set) Set { return s.merge(o, func(a, b uint64) uint64 { return a | b }) }

// Minus is the set of cores in s that are not in o.
func (s Set) Minus(o Set) Set { return s.merge(o, func(a, b uint64) uint64 { return a &^ b }) }

func (s Set) merge(o Set, word func(a, b uint64) uint64) Set {
	merged := make([]uint64, max(len(s.words), len(o.words)))
	copy(merged, s.words)
	for i := range merged {
		b := uint64(0)
		if i < len(o.words) {
			b = o.words[i]
		}
		merged[i] = word(merged[i], b)
	}
	return Set{merged}
}

// String is the shortest list that Parse reads: "0-3,8".
func (s Set) String() string {
	var b strings.Builder
	for first, last := range text.Runs(s.Cores()) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if last > first {
			fmt.Fprintf(&b, "-%d", last)
		}
	}
	return b.String()
}
