package tcpvan

import (
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/van"
)

// outbox holds the operations of an endpoint in a ring. The caller of Send
// appends at tail. The goroutine whose turn it is to write (writer.turn) finishes them
// at done. Poll hands out completions at polled.
//
//	polled <= done <= tail <= polled + len(ring)
type outbox struct {
	ring   []operation
	tail   atomic.Uint64 // sealed, or the count of operations accepted
	done   atomic.Uint64
	polled atomic.Uint64

	threshold int // bytes of payload from which it is cut over the rails

	// Owned by the goroutine whose turn it is to write.
	cursors []cursor // one per rail
	iov     []unix.Iovec
}

// sealed in tail says that nothing is accepted any more.
const sealed = 1 << 63

// operation is one accepted Send.
type operation struct {
	id      van.OpID
	err     error
	segs    [][]byte // head, padding, then the segments of the payload that are not empty
	payload int64
}

// lead is how many of operation.segs come before the payload.
const lead = 2

// cursor is where a rail is in the stream of operations.
type cursor struct {
	op    uint64 // first operation that the rail has not finished
	begun bool   // span is what remains of it
	span         // of segs
}

func (o *outbox) init(capacity, rails, threshold int) {
	n := 1 << bits.Len(uint(capacity-1))
	o.ring = make([]operation, n)
	const most = lead + 1 // of nearly all messages
	segs := make([][]byte, most*n)
	for i := range o.ring {
		o.ring[i].segs = segs[most*i : most*i : most*(i+1)]
	}
	o.cursors, o.threshold = make([]cursor, rails), threshold
	o.iov = make([]unix.Iovec, 0, 16)
}

func (o *outbox) at(i uint64) *operation { return &o.ring[i&uint64(len(o.ring)-1)] }

// accepted is the count of operations accepted.
func (o *outbox) accepted() uint64 { return o.tail.Load() &^ sealed }

// pending reports whether something waits to be written.
func (o *outbox) pending() bool { return o.done.Load() != o.accepted() }

// drained reports whether all completions have been handed out.
func (o *outbox) drained() bool { return o.polled.Load() == o.accepted() }

func (o *outbox) full() bool { return o.accepted()-o.polled.Load() == uint64(len(o.ring)) }

// push appends m, with its payload copied to spare unless that is nil. False means that the box was sealed meanwhile.
// The caller of Send only, when the box is not full.
func (o *outbox) push(m *van.Message, payload int64, spare []byte) bool {
	t := o.tail.Load()
	if t&sealed != 0 {
		return false
	}
	op := o.at(t)
	op.id, op.err, op.payload = m.Op, nil, payload
	op.segs = append(op.segs[:0], m.Head, zeros[:padding(len(m.Head), payload)])
	for _, b := range m.Payload {
		if len(b) > 0 {
			op.segs = append(op.segs, b)
		}
	}
	if spare != nil {
		op.move(spare, 0, payload)
	}
	if o.tail.CompareAndSwap(t, t+1) {
		return true
	}
	clear(op.segs)
	return false
}

// moveToSpare moves to spare what the rails have not sent of the payload of the last operation. Writer's turn, and the
// caller of the Send that has pushed it.
func (o *outbox) moveToSpare(spare []byte) {
	last := o.accepted() - 1
	if o.done.Load() > last {
		return
	}
	op := o.at(last)
	for i := range o.cursors {
		c := &o.cursors[i]
		if c.op > last {
			continue
		}
		from, to := share(op.payload, o.threshold, len(o.cursors), i)
		if c.op == last && c.begun {
			from = max(from, to-c.left) // rail 0 may have a part of the head left, too
		}
		op.copyTo(spare, from, to)
	}
	op.move(spare, 0, 0)
}

// move has the payload lie in spare, cut as it was, after it has copied its bytes [from, to).
func (op *operation) move(spare []byte, from, to int64) {
	op.copyTo(spare, from, to)
	for i := lead; i < len(op.segs); i++ {
		n := len(op.segs[i])
		op.segs[i], spare = spare[:n:n], spare[n:]
	}
}

// copyTo copies the bytes [from, to) of the payload to the same place in spare.
func (op *operation) copyTo(spare []byte, from, to int64) {
	at := spanOf(op.segs[lead:], from, to).at
	at.Gather(spare[from:to], op.segs[lead:])
}

// seal ends acceptance.
func (o *outbox) seal() { o.tail.Or(sealed) }

// finish completes the operations before end. Writer's turn.
func (o *outbox) finish(end uint64, err error) {
	for i := o.done.Load(); i != end; i++ {
		op := o.at(i)
		op.err = err
		clear(op.segs)
	}
	o.done.Store(end)
}

// stand has c stand at an operation that rail i has not finished. It reports whether there is one.
func (o *outbox) stand(c *cursor, i int) bool {
	for {
		if c.begun {
			if c.left > 0 {
				return true
			}
			c.op, c.begun = c.op+1, false
		}
		if c.op == o.accepted() {
			return false
		}
		op := o.at(c.op)
		from, to := share(op.payload, o.threshold, len(o.cursors), i)
		head := int64(len(op.segs[0]) + len(op.segs[1]))
		if to += head; i > 0 {
			from += head
		}
		c.span, c.begun = spanOf(op.segs, from, to), true
	}
}

// gather fills iov with what rail i sends next, up to limit bytes, and returns their number and the cursor behind them.
func (o *outbox) gather(i, limit int) (size int, behind cursor) {
	c := o.cursors[i]
	o.iov = o.iov[:0]
	for size < limit && len(o.iov) < sys.MaxIovecs && o.stand(&c, i) {
		b := c.next(o.at(c.op).segs, limit-size)
		o.iov = append(o.iov, sys.Iovec(b))
		size += len(b)
	}
	return size, c
}

// advance moves rail i by n bytes that the socket took.
func (o *outbox) advance(i, n int) {
	for c := &o.cursors[i]; n > 0 && o.stand(c, i); {
		n -= len(c.next(o.at(c.op).segs, n))
	}
}

// memory is what waits to be sent. Writer's turn.
func (o *outbox) memory() (segs [][]byte) {
	for i := o.done.Load(); i != o.accepted(); i++ {
		segs = append(segs, o.at(i).segs...)
	}
	return segs
}

// settle finishes what all rails have sent and reports whether there was anything. Writer's turn.
func (o *outbox) settle() bool {
	end := o.accepted()
	for i := range o.cursors {
		c := &o.cursors[i]
		o.stand(c, i) // steps over what is finished
		end = min(end, c.op)
	}
	if end == o.done.Load() {
		return false
	}
	o.finish(end, nil)
	return true
}
