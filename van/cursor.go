package van

import "github.com/stepvan/stepvan/internal/bulk"

// Cursor is a position in a payload that consists of segments. The zero value is its beginning.
type Cursor struct {
	Segment int // index of the segment
	Offset  int // bytes into it
}

// Next returns the bytes of segments between c and the end of its segment, at most limit of them, and moves c behind
// them. It returns nothing for an empty segment, which it passes. The cursor must be before the end of segments.
func (c *Cursor) Next(segments [][]byte, limit int64) []byte {
	all := segments[c.Segment]
	p := all[c.Offset:]
	if int64(len(p)) > limit {
		p = p[:limit]
	}
	if c.Offset += len(p); c.Offset == len(all) {
		c.Segment, c.Offset = c.Segment+1, 0
	}
	return p
}

// Skip moves c by n bytes of segments, which has them.
func (c *Cursor) Skip(segments [][]byte, n int64) {
	for n > 0 {
		n -= int64(len(c.Next(segments, n)))
	}
}

// Scatter copies from to segments, which has room for it behind c, and moves c behind it.
func (c *Cursor) Scatter(segments [][]byte, from []byte) {
	for len(from) > 0 {
		from = from[bulk.Copy(c.Next(segments, int64(len(from))), from):]
	}
}

// Gather fills to with the bytes of segments behind c, which has as many, and moves c behind them.
func (c *Cursor) Gather(to []byte, segments [][]byte) {
	for len(to) > 0 {
		to = to[bulk.Copy(to, c.Next(segments, int64(len(to)))):]
	}
}
