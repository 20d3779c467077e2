package strided

// most is how many steps a search may take. Views of programs take none, or a few.
const most = 10_000

// farthest is how far the loops of a search may go together. Memory is smaller.
const farthest = 1 << 61

// step is a loop of a search: from no step to extent-1 of them, each so many bytes long.
type step struct{ extent, stride int64 }

// search looks for steps whose sum lies in a range. It knows three things of the sums of the loops from one on. They
// are how far they go, the largest gap between two neighbours, and a number that divides all of them.
type search struct {
	steps [2 * MaxRank]step // the longest strides first, none of them 0
	rank  int
	reach [2*MaxRank + 1]int64
	gap   [2*MaxRank + 1]int64
	unit  [2*MaxRank + 1]int64
	left  int // steps
}

// add adds a loop inside of the others.
func (s *search) add(d step) { s.rank = len(within(s.steps[:s.rank], d)) }

// within adds a loop inside of those of a list, whose steps are as long or longer. It joins loops that together are
// like a single one: where the inner one fills the steps of the outer one, or goes beyond them.
func within(list []step, d step) []step {
	for n := len(list); n > 0; n-- {
		o := list[n-1]
		if o.stride%d.stride != 0 || d.extent < o.stride/d.stride {
			break
		}
		d.extent += (o.extent - 1) * (o.stride / d.stride)
		list = list[:n-1]
	}
	return append(list, d)
}

// prepare follows the last add.
func (s *search) prepare() {
	s.reach[s.rank], s.gap[s.rank], s.unit[s.rank] = 0, 0, 0
	for i := s.rank - 1; i >= 0; i-- {
		p := &s.steps[i]
		s.reach[i], s.gap[i], s.unit[i] = s.reach[i+1], s.gap[i+1], s.unit[i+1]
		if p.extent > 1 {
			if p.extent-1 > (farthest-s.reach[i])/p.stride {
				s.left = 0
				return
			}
			s.reach[i] += (p.extent - 1) * p.stride
			s.gap[i] = max(s.gap[i], p.stride-s.reach[i+1])
			s.unit[i] = divisor(p.stride, s.unit[i])
		}
	}
}

// find reports whether a sum of the loops from i on is at least lo and at most hi.
func (s *search) find(i int, lo, hi int64) bool {
	switch {
	case s.left == 0:
		return false
	case lo > hi || hi < 0 || lo > s.reach[i]:
		return false
	case lo <= 0 || hi >= s.reach[i] || hi-lo >= s.gap[i]-1:
		return true
	case hi/s.unit[i]*s.unit[i] < lo:
		return false
	}
	p := &s.steps[i]
	first, last := max(0, (lo-s.reach[i+1]+p.stride-1)/p.stride), min(p.extent-1, hi/p.stride)
	for n := first; n <= last && s.left > 0; n++ {
		s.left--
		if s.find(i+1, lo-n*p.stride, hi-n*p.stride) {
			return true
		}
	}
	return false
}

// divisor returns the greatest common divisor. That of a number and 0 is the number.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
