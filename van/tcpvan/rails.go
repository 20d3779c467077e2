package tcpvan

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

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

// span is bytes that lie in several segments.
type span struct {
	at   van.Cursor
	left int64 // bytes that remain of the span
}

// spanOf is the span [from, to) of segs.
func spanOf(segs [][]byte, from, to int64) span {
	s := span{left: to - from}
	s.at.Skip(segs, from)
	return s
}

// next returns contiguous bytes, at most limit, and moves s behind them. It returns none at the end of the span only.
func (s *span) next(segs [][]byte, limit int) (b []byte) {
	for len(b) == 0 && s.left > 0 {
		b = s.at.Next(segs, min(s.left, int64(limit)))
		s.left -= int64(len(b))
	}
	return b
}

// skip moves s by n bytes, which it has.
func (s *span) skip(segs [][]byte, n int) {
	s.at.Skip(segs, int64(n))
	s.left -= int64(n)
}

// gather appends to iov where the next bytes of s are, at most limit bytes, and returns their number. One entry is left
// for the staging buffer.
func (s span) gather(iov []unix.Iovec, segs [][]byte, limit int) ([]unix.Iovec, int) {
	size := 0
	for s.left > 0 && size < limit && len(iov) < sys.MaxIovecs-1 {
		b := s.next(segs, limit-size)
		iov = append(iov, sys.Iovec(b))
		size += len(b)
	}
	return iov, size
}

// checkRails looks, when nothing can be read, for rails whose peer is gone although
// no message waits for them. The endpoint is not lost for that reason alone. Messages that the peer
// sent before may still be on their way on rail 0.
func (rd *reader) checkRails() {
	for i, c := range rd.ep.rails {
		if i == 0 || !c.hup || rd.wants(i) {
			continue
		}
		switch n, e := c.peek(); {
		case e == sys.Again:
			c.hup = false
		case e != 0 || n == 0:
			c.hup = false
			rd.ep.w.breakOff(rd.ep.fault("receive", rd.lossOf(e)))
		}
	}
}

// peek looks for a byte, and leaves it there.
func (c *conn) peek() (n int, e syscall.Errno) {
	var b [1]byte
	return sys.Recv(c.fd, b[:], unix.MSG_PEEK)
}
