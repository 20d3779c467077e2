package tcpvan

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
)

// writeBound is the number of bytes that one call of pump offers a rail: 4 MiB and their head. A peer that
// reads as fast as Send or Poll writes cannot keep either of them for long.
const writeBound = 4<<20 + 64<<10

// pump writes what waits. Concurrent: one goroutine has the writer's turn, the others leave their wish with it and
// go. It reports whether this goroutine completed operations.
func (w *writer) pump() (completed bool) {
	if w.turn.Add(1) != 1 {
		return false
	}
	completed = w.write()
	return w.endTurn(1) || completed
}

// endTurn ends the writer's turn after serving the wishes that came meanwhile. wishes is how many this goroutine has
// served. It reports whether it completed operations.
func (w *writer) endTurn(wishes int32) (completed bool) {
	for wishes = w.turn.Add(-wishes); wishes != 0; wishes = w.turn.Add(-wishes) {
		if w.write() {
			completed = true
		}
	}
	return completed
}

// write offers the sockets what waits and finishes what they took. Writer's turn.
func (w *writer) write() (completed bool) {
	if !w.ep.enter(writing) {
		return w.abandon()
	}
	defer w.ep.leave(writing)
	if w.sendErr.Load() != nil {
		return w.abandon()
	}
	w.more.Store(false)
	for i, c := range w.ep.rails {
		if c.blocked.Load() {
			continue
		}
		if e := w.writeRail(i, c); e != 0 {
			w.failSend(explain(e, w.out.memory()))
			w.abandon()
			return true
		}
	}
	return w.out.settle()
}

// breakOff ends sending because of err, which becomes the reason of the loss. The van
// still delivers what the peer sent. The loss is complete when rail 0 ends. The peer ends it
// as soon as it finds its own rail 0 ended. Concurrent, between enter and leave.
func (w *writer) breakOff(err error) {
	w.out.seal()
	if w.sendErr.CompareAndSwap(nil, &err) {
		_ = unix.Shutdown(w.ep.rails[0].fd, unix.SHUT_WR)
		w.ep.note()
	}
}

// writeRail writes to one socket until it takes no more.
func (w *writer) writeRail(i int, c *conn) syscall.Errno {
	o := &w.out
	for sent := 0; sent < writeBound; {
		size, behind := o.gather(i, writeBound)
		if size == 0 {
			return 0
		}
		room := c.room.Load()
		n, e := sys.Sendmsg(c.fd, o.iov)
		clear(o.iov)
		switch {
		case e == 0 && n == size:
			o.cursors[i] = behind
		case e == 0:
			o.advance(i, n)
		case e == sys.Again:
			if c.block(room) {
				return 0
			}
		case e == unix.ENOBUFS || e == unix.ENOMEM:
			w.more.Store(true) // no event will tell when the kernel has memory again
			return 0
		default:
			return e
		}
		sent += n
	}
	w.more.Store(true)
	return 0
}

// block stops writing until the socket has room, and asks for the event that says
// so. It returns false when that event came since room was read. Writer's turn.
func (c *conn) block(room uint32) bool {
	c.blocked.Store(true)
	if c.polled.CompareAndSwap(false, true) {
		c.ep.v.watch(c)
	}
	if c.room.Load() == room {
		return true
	}
	c.blocked.Store(false)
	return false
}

// unblock notes that the socket has room. Poll only.
func (c *conn) unblock() {
	c.room.Add(1)
	c.blocked.Store(false)
	if c.ep.w.out.pending() || !c.polled.Load() {
		return
	}
	// Unix sockets tell of room whenever the peer reads: stop listening to that.
	c.polled.Store(false)
	if c.ep.w.out.pending() {
		c.polled.Store(true) // a writer may have relied on it
		return
	}
	c.ep.v.watch(c)
}

// abandon fails everything that is not written. Writer's turn.
func (w *writer) abandon() bool {
	err := w.ep.endError()
	if p := w.sendErr.Load(); p != nil {
		err = *p
	}
	end := w.out.accepted()
	if end == w.out.done.Load() {
		return false
	}
	w.out.finish(end, err)
	return true
}
