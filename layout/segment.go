package layout

import (
	"cmp"
	"slices"
	"sort"
)

// segment is n elements of a dimension that lie without a gap in the source and in the destination.
type segment struct {
	src, dst, n int64
	cell        int32 // what it adds to the number of the source's part
}

// match appends the segments of a list of spans and of all parts of a division.
func match(out []segment, tiles []tile, list []Span) []segment {
	floor := len(out)
	at := 0
	for _, s := range list {
		if at < len(tiles) && tiles[at].Stop <= s.Start {
			rest := tiles[at:]
			at += sort.Search(len(rest), func(i int) bool { return rest[i].Stop > s.Start })
		}
		for ; at < len(tiles) && tiles[at].Start < s.Stop; at++ {
			t := &tiles[at]
			first, last := max(s.Start, t.Start), min(s.Stop, t.Stop)
			out = append(out, segment{t.Local + first - t.Start, s.Local + first - s.Start, last - first, t.cell})
			if t.Stop > s.Stop {
				break // the next span may need it too
			}
		}
	}
	return join(out, floor)
}

// overlap appends the segments of the lists of two parts, both ordered by Start.
func overlap(out []segment, src, dst []Span) []segment {
	floor := len(out)
	for len(src) > 0 && len(dst) > 0 {
		s, d := &src[0], &dst[0]
		first, last := max(s.Start, d.Start), min(s.Stop, d.Stop)
		if first < last {
			out = append(out, segment{s.Local + first - s.Start, d.Local + first - d.Start, last - first, 0})
		}
		if s.Stop < d.Stop {
			src = src[1:]
		} else {
			dst = dst[1:]
		}
	}
	return join(out, floor)
}

// join orders the segments behind floor by their place in the destination, and joins those that touch on both sides.
func join(all []segment, floor int) []segment {
	part := all[floor:]
	byDestination := func(a, b segment) int { return cmp.Compare(a.dst, b.dst) }
	if !slices.IsSortedFunc(part, byDestination) {
		slices.SortFunc(part, byDestination)
	}
	n := 0
	for i := range part {
		s := part[i]
		if n > 0 {
			if last := &part[n-1]; last.cell == s.cell && last.dst+last.n == s.dst && last.src+last.n == s.src {
				last.n += s.n
				continue
			}
		}
		part[n] = s
		n++
	}
	return all[:floor+n]
}
