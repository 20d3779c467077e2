package tcpvan

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/van"
)

// directBound is the payload up to which a message may go to the socket without passing the outbox.
// Larger ones complete with an event, which is what keeps a sender of many pieces polling between them.
const directBound = 64 << 10

// direct reports whether m may go past the outbox: it is small, goes over one rail, and nothing is before it. Send only.
func (ep *endpoint) direct(m *van.Message, payload int64) bool {
	return payload <= directBound && len(m.Payload) < maxIovecs && !ep.out.pending() &&
		(len(ep.rails) == 1 || payload < int64(ep.threshold)) && !ep.rails[0].blocked.Load()
}

// sendDirect gives m to the socket. What the socket takes whole is complete (Message.Done); the rest of
// what it takes in part goes into the outbox. Writer's token, which it returns. Send only.
func (ep *endpoint) sendDirect(m *van.Message, payload int64) error {
	n := ep.writeDirect(m)
	queued := false
	if m.Done = n == len(m.Head)+int(payload); !m.Done {
		if queued = ep.out.push(m, payload); queued {
			ep.out.advance(0, len(ep.rails), ep.threshold, n)
		}
	}
	completed := queued && ep.write()
	if ep.yield(1) || completed || queued && ep.more.Load() {
		ep.note()
	}
	if !m.Done && !queued {
		return ep.gone()
	}
	return nil
}

// writeDirect returns how many bytes of m the socket took. When it is broken sending ends, and nothing
// more is accepted. Writer's token.
func (ep *endpoint) writeDirect(m *van.Message) (n int) {
	if !ep.enter(writing) {
		return 0
	}
	defer ep.leave(writing)
	o := &ep.out
	o.iov = append(o.iov[:0], iovec(m.Head))
	for _, b := range m.Payload {
		if len(b) > 0 {
			o.iov = append(o.iov, iovec(b))
		}
	}
	n, e := sendmsg(ep.rails[0].fd, o.iov)
	clear(o.iov)
	switch e {
	case 0:
		return n
	case again, unix.ENOBUFS, unix.ENOMEM:
	default:
		ep.snap(e)
	}
	return 0
}

// snap ends sending because a socket is broken. Between enter and leave.
func (ep *endpoint) snap(e syscall.Errno) {
	ep.breakOff(ep.fault("send", fmt.Errorf("%w: %w", errs.ErrPeerLost, e)))
}
