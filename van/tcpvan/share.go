package tcpvan

// pageMask keeps the parts of rails aligned to pages.
const pageMask = 4095

// share says which bytes [from, to) of a payload rail i of n carries. Both sides compute it.
func share(payload int64, threshold, n, i int) (from, to int64) {
	if n == 1 || payload < int64(threshold) {
		if i == 0 {
			return 0, payload
		}
		return payload, payload
	}
	part := (payload/int64(n) + pageMask + 1) &^ pageMask
	return min(part*int64(i), payload), min(part*int64(i+1), payload)
}

// span walks over bytes that lie in several segments.
type span struct {
	seg, off int
	left     int64 // bytes that remain of the span
}

// spanOf is the span [from, to) of segs.
func spanOf(segs [][]byte, from, to int64) span {
	s := span{left: to - from}
	if s.left == 0 {
		return s
	}
	for from >= int64(len(segs[s.seg])) {
		from -= int64(len(segs[s.seg]))
		s.seg++
	}
	s.off = int(from)
	return s
}

// chunk is the contiguous bytes that come next, empty at the end of the span.
func (s *span) chunk(segs [][]byte) []byte {
	for s.left > 0 && s.off == len(segs[s.seg]) {
		s.seg, s.off = s.seg+1, 0
	}
	if s.left == 0 {
		return nil
	}
	b := segs[s.seg][s.off:]
	return b[:min(int64(len(b)), s.left)]
}

// skip moves n bytes on, at most the length of the last chunk.
func (s *span) skip(n int) {
	s.off += n
	s.left -= int64(n)
}

// pass moves n bytes on, over any number of segments.
func (s *span) pass(segs [][]byte, n int) {
	for n > 0 {
		k := min(n, len(s.chunk(segs)))
		s.skip(k)
		n -= k
	}
}
