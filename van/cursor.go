package van

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
