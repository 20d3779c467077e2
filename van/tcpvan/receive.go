package tcpvan

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// readBound is the number of bytes that one Poll reads from one endpoint, so that
// a fast peer does not keep the others waiting.
const readBound = 2 << 20

// step moves one endpoint and reports whether there is more to do at once. Poll only.
func (ep *endpoint) step() (more bool) {
	if ep.unannounced {
		return ep.announce()
	}
	if ep.w.ahead.Load() != 0 {
		ep.w.ahead.Store(0) // it matters little which of two that happen at once comes first
	}
	if ep.visit != nil && ep.state.Load()&ended != 0 {
		ep.Settle()
	}
	if !ep.complete() {
		return true
	}
	if ep.w.out.pending() && !ep.blocked() {
		ep.w.pump()
		if !ep.complete() {
			return true
		}
	}
	if ep.w.sendErr.Load() != nil {
		ep.rails[0].readable = true // epoll may have told so before the failure
	}
	if !ep.lost && ep.state.Load()&ended == 0 {
		more = ep.rd.receive()
	}
	if ep.lost && !ep.lossReported {
		return ep.tell()
	}
	return more || ep.w.more.Load() && ep.w.out.pending()
}

// complete hands out completions and reports whether there was room for all.
func (ep *endpoint) complete() bool {
	o := &ep.w.out
	i, done := o.polled.Load(), o.done.Load()
	if i == done {
		return true
	}
	for ; i != done; i++ {
		op := o.at(i)
		id, err := op.id, op.err
		if !ep.v.poller.emit(van.Event{Kind: van.EventCompletion, Endpoint: ep, Op: id, Err: err}) {
			break
		}
		op.err = nil
	}
	o.polled.Store(i)
	ep.v.poller.touch(ep)
	return i == done
}

// tell reports the loss once all completions are handed out. It returns whether to try again soon.
func (ep *endpoint) tell() (more bool) {
	if ep.state.Load()&closed != 0 {
		ep.lossReported = true
		return false
	}
	if !ep.complete() {
		return true
	}
	if !ep.w.out.drained() {
		return false // the goroutine that holds the writer's token notes the endpoint
	}
	ep.lossReported = ep.v.poller.emit(van.Event{Kind: van.EventLost, Endpoint: ep, Err: ep.cause})
	return !ep.lossReported
}

// lose ends the endpoint because of the peer.
func (ep *endpoint) lose(err error) {
	var wrong *wire.VersionError
	if errors.As(err, &wrong) {
		ep.w.shutRefuse()
	}
	ep.cause = ep.fault("receive", err)
	if first := ep.w.sendErr.Load(); first != nil {
		ep.cause = *first
	}
	ep.lost = true
	ep.end()
}

// receive reads and parses until the budget is used, the sockets are empty or
// something is missing. It reports whether the next Poll should continue.
func (rd *reader) receive() (more bool) {
	if !rd.ep.enter(reading) {
		return false
	}
	rd.unread, rd.waits = readBound, false
	more, err := rd.read()
	rd.ep.leave(reading)
	if err != nil {
		rd.ep.lose(err)
	}
	return more
}

func (rd *reader) read() (more bool, err error) {
	for {
		why, err := rd.parse()
		if err != nil || why == wantOut {
			return false, err
		}
		if why == wantEvents {
			return true, nil
		}
		if why == wantCredit {
			return false, nil // the first Release notes the endpoint
		}
		if rd.unread <= 0 {
			return true, nil
		}
		read, err := rd.readOnce()
		if err != nil {
			return false, err
		}
		if !read {
			rd.noteWait()
			rd.checkRails()
			return false, nil
		}
	}
}

// readOnce reads once from every rail that has something, and reports whether any had.
func (rd *reader) readOnce() (read bool, err error) {
	for i, c := range rd.ep.rails {
		if !c.readable || !rd.wants(i) {
			continue
		}
		if rd.unread <= 0 {
			return true, nil
		}
		n, short, e := rd.fill(i)
		switch {
		case e == sys.Again:
			c.readable = false
			continue
		case e != 0 || n == 0:
			return false, rd.lossOf(e)
		case short && !c.hup:
			c.readable = false // a stream that gave less than asked is empty
		}
		rd.ep.v.poller.touch(rd.ep)
		rd.got += uint64(n)
		read = true
	}
	return read, nil
}

// wants reports whether rail i has something to bring in this phase.
func (rd *reader) wants(i int) bool {
	if rd.phase != phasePayload {
		return i == 0
	}
	return rd.parts[i].left > 0
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
