package layout

// Span is the range [Start, Stop) of a dimension of the whole tensor. It lies at offset Local of the same dimension of
// a part. All three count elements.
type Span struct{ Start, Stop, Local int64 }

// Limits of spans. They bound what a message of a peer may cost.
const (
	maxSpans    = 1 << 16 // of a part
	maxSegments = 1 << 20 // of a dimension, in all parts
)

// size is the number of elements.
func (s Span) size() int64 { return s.Stop - s.Start }

// add appends s to a list that ends before it, and joins the two where they touch in the whole and in the part. Spans
// before floor belong to another list.
func add(list []Span, floor int, s Span) []Span {
	if s.Start >= s.Stop {
		return list
	}
	if len(list) > floor {
		last := &list[len(list)-1]
		if last.Stop == s.Start && last.Local+last.size() == s.Local {
			last.Stop = s.Stop
			return list
		}
	}
	return append(list, s)
}

// length is the extent of the part of a list whose spans ascend in the whole and in the part alike.
func length(list []Span) int64 {
	if len(list) == 0 {
		return 0
	}
	last := list[len(list)-1]
	return last.Local + last.size()
}

// cursor takes ranges out of a list, in ascending order. The spans of the list ascend in the whole and in the part
// alike.
type cursor struct {
	list []Span
	at   int
}

// take appends the elements [lo, hi) of the part to out. They lie at local and behind it in the new part.
func (c *cursor) take(out []Span, floor int, lo, hi, local int64) []Span {
	for ; c.at < len(c.list); c.at++ {
		s := c.list[c.at]
		first, last := max(lo, s.Local), min(hi, s.Local+s.size())
		if first < last {
			start := s.Start + first - s.Local
			out = add(out, floor, Span{start, start + last - first, local + first - lo})
		}
		if s.Local+s.size() > hi {
			break
		}
	}
	return out
}
