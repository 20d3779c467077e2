package tcpvan

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

const (
	// directBound is the payload up to which a message may always go around the outbox, straight to the socket.
	directBound = 64 << 10
	// bypassBound is how much payload of larger messages may go around the outbox between two looks of Poll at the
	// endpoint. Pieces that more pieces follow (Message.More) may not, unless they have a Spare. They complete with an
	// event, which keeps a sender of many pieces polling between them. An event wakes the driver that sleeps
	// on FD, so the last message before a pause does better without one.
	bypassBound = writeBound
)

// Send implements van.Endpoint. Budget: one system call, no allocation, when the socket takes the message.
func (ep *endpoint) Send(m *van.Message) error {
	payload, err := ep.v.caps.Check(m)
	if err != nil {
		return err
	}
	if ep.state.Load()&ended != 0 {
		return ep.endError()
	}
	if ep.w.out.full() {
		return stepvan.ErrWouldBlock
	}
	if ep.w.mayBypass(m, payload) && ep.w.turn.CompareAndSwap(0, 1) {
		return ep.w.sendDirect(m, payload)
	}
	if m.Spare != nil && !ep.blocked() && ep.w.turn.CompareAndSwap(0, 1) {
		return ep.w.sendRest(m, payload, 0)
	}
	if !ep.w.out.push(m, payload, m.Spare) {
		return ep.endError()
	}
	if ep.blocked() {
		return nil
	}
	if ep.w.pump() || ep.w.more.Load() {
		ep.note()
	}
	return nil
}

// mayBypass decides whether m goes to the socket without passing through the outbox, and counts it if it is large.
// m must go over one rail, with nothing before it. It must also be small, or little enough must have gone around the
// outbox since Poll last looked. Send only.
func (w *writer) mayBypass(m *van.Message, payload int64) bool {
	if len(m.Payload)+lead > sys.MaxIovecs || w.out.pending() || w.ep.rails[0].blocked.Load() ||
		len(w.ep.rails) > 1 && payload >= int64(w.ep.threshold) {
		return false
	}
	if payload <= directBound {
		return true
	}
	bypassed := w.bypassed.Load() + payload
	if m.More && m.Spare == nil || bypassed > bypassBound {
		return false
	}
	w.bypassed.Store(bypassed)
	return true
}

// sendDirect gives m to the socket. What the socket takes whole is complete (Message.Done); the rest of
// what it takes in part goes into the outbox. Writer's turn, which it ends. Send only.
func (w *writer) sendDirect(m *van.Message, payload int64) error {
	n := w.writeDirect(m, payload)
	m.Done = n == len(m.Head)+padding(len(m.Head), payload)+int(payload)
	return w.sendRest(m, payload, n)
}

// sendRest ends a send of which the socket has taken n bytes. Unless m.Done, the rest goes through the outbox. What the
// sockets do not take of it at once moves to m.Spare. Writer's turn, which it ends. Send only.
func (w *writer) sendRest(m *van.Message, payload int64, n int) error {
	queued := !m.Done && w.out.push(m, payload, nil)
	completed := false
	if queued {
		w.out.advance(0, n)
		completed = w.write()
		if m.Spare != nil {
			w.out.moveToSpare(m.Spare)
		}
	}
	if w.endTurn(1) || completed || queued && w.more.Load() {
		w.ep.note()
	}
	if !m.Done && !queued {
		return w.ep.endError()
	}
	return nil
}

// writeDirect returns how many bytes of m the socket took. When it is broken sending ends, and nothing
// more is accepted. Writer's turn.
func (w *writer) writeDirect(m *van.Message, payload int64) (n int) {
	if !w.ep.enter(writing) {
		return 0
	}
	defer w.ep.leave(writing)
	o := &w.out
	o.iov = append(o.iov[:0], sys.Iovec(m.Head))
	if pad := padding(len(m.Head), payload); pad > 0 {
		o.iov = append(o.iov, sys.Iovec(zeros[:pad]))
	}
	for _, b := range m.Payload {
		if len(b) > 0 {
			o.iov = append(o.iov, sys.Iovec(b))
		}
	}
	n, e := sys.Sendmsg(w.ep.rails[0].fd, o.iov)
	clear(o.iov)
	switch e {
	case 0:
		return n
	case sys.Again, unix.ENOBUFS, unix.ENOMEM:
	default:
		w.failSend(explain(e, m.Payload))
	}
	return 0
}

// failSend ends sending because a socket is broken. Between enter and leave.
func (w *writer) failSend(err error) { w.breakOff(w.ep.fault("send", err)) }

// explain is the reason of a loss: the socket is broken, or memory of this process is gone. Memory that is gone leaves
// a message cut off.
func explain(e syscall.Errno, memory [][]byte) error {
	if e == unix.EFAULT {
		if own := shm.Unmapped(memory); own != nil {
			return own
		}
	}
	return fmt.Errorf("%w: %w", stepvan.ErrPeerLost, e)
}
