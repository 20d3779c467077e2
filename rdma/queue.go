package rdma

import "github.com/stepvan/stepvan/internal/verbs"

// sendQueue is the send side of the queue pair: requests are added to a chain, and posted with one doorbell. Guarded by
// endpoint.mu.
type sendQueue struct {
	rail     *rail
	conn     *connection
	requests requests
	buffers  buffers
	inline   int // bytes that the queue pair copies
	ring     peerRing
	shut     bool // the queue pair ends: nothing more is posted
}

func (q *sendQueue) init(r *rail, o *Options) {
	c := r.conn
	q.rail, q.conn = r, c
	q.inline = min(c.qp.Caps().Inline, o.SlotBytes)
	q.requests.depth = uint32(min(o.SendRequests, c.device.attributes.QPRequests))
	if r.e.several() {
		for _, d := range r.e.v.devices { // what went over one rail fits into the queue of any other
			q.requests.depth = min(q.requests.depth, uint32(d.attributes.QPRequests))
		}
	}
	q.buffers.init(c.sends)
}

// takeBuffer returns a buffer, or -1.
func (q *sendQueue) takeBuffer() int {
	i := q.buffers.take()
	if i < 0 && q.conn.chain.Len() > 0 {
		q.post() // after which the buffers of inline data are free
		i = q.buffers.take()
	}
	return i
}

// buffer is the memory of a buffer.
func (q *sendQueue) buffer(i int) []byte { return q.conn.slot(q.conn.receives + i) }

// addSlot adds a send of a buffer, with n bytes behind the prefix, to the chain.
func (q *sendQueue) addSlot(i int, p *prefix, n int, signal bool) (number uint32) {
	q.rail.stamp(p)
	b := q.buffer(i)[:prefixBytes+n]
	p.encode(b)
	r := verbs.Request{Op: verbs.OpSend}
	if !p.isRecord() {
		q.ring.direct(&r, q.rail.credit.messages.sent.Load(), len(b))
	}
	inline := len(b) <= q.inline
	if q.rail.flight.on && !p.isRecord() {
		q.buffers.keep(i, inline, q.requests.retired)
	}
	if inline {
		r.Flags = verbs.Inline
		q.buffers.inline |= 1 << uint(i)
		number, _ = q.add(r, signal, q.segment(b))
		return number
	}
	number, signaled := q.add(r, signal || q.buffers.mustSignal(), q.segment(b))
	q.buffers.use(i, number, signaled)
	return number
}

// segment is a part of the memory of the connection behind its page.
func (q *sendQueue) segment(b []byte) verbs.Segment {
	return verbs.Segment{Addr: addressOf(b), Length: uint32(len(b)), Key: q.conn.slots.LocalKey()}
}

// add adds a request to the chain, which it posts when it is full.
func (q *sendQueue) add(r verbs.Request, signal bool, from ...verbs.Segment) (number uint32, signaled bool) {
	if q.conn.chain.Room() == 0 {
		q.post()
	}
	number, signaled = q.requests.next(signal)
	if signaled {
		r.Flags |= verbs.Signaled
	}
	r.ID = sendID(q.rail.number, number)
	if err := q.conn.chain.Add(r, from...); err != nil {
		q.rail.fail("send", err)
	}
	return number, signaled
}

// addWrite adds a write of a segment, from a place in it on, of at most limit bytes and of what one request can carry.
func (q *sendQueue) addWrite(w *write, at, limit int64) (n int64, number uint32) {
	n = min(int64(len(w.from))-at, int64(q.conn.device.maxMessage), limit)
	r := verbs.Request{Op: verbs.OpWrite, Remote: w.remote + uint64(at), Key: w.grant.keys[q.rail.device]}
	from := verbs.Segment{Addr: addressOf(w.from) + uintptr(at), Length: uint32(n), Key: w.region.keys[q.conn.device.index].LocalKey()}
	number, _ = q.add(r, false, from)
	return n, number
}

// post rings the doorbell.
func (q *sendQueue) post() {
	if q.conn.chain.Len() == 0 {
		return
	}
	var err error
	if !q.shut {
		_, err = q.conn.qp.PostSend(q.conn.chain)
	}
	q.conn.chain.Reset()
	q.buffers.posted()
	if err != nil {
		q.rail.fail("send", err)
	}
}

// flush reports whether requests are not complete. It has the last of them say when they are.
func (q *sendQueue) flush() bool {
	r := &q.requests
	if r.retired == r.added {
		return false
	}
	if r.signaled != r.added && r.all() > 0 {
		q.addMark()
		q.post()
	}
	return true
}

// addMark adds a request that does nothing and says that all before it are complete. It is a write of no bytes.
func (q *sendQueue) addMark() (number uint32) {
	r := verbs.Request{Op: verbs.OpWrite, Remote: q.rail.teller.word, Key: q.rail.teller.key}
	number, _ = q.add(r, true, verbs.Segment{Addr: addressOf(q.conn.memory.Bytes()), Key: q.conn.words.LocalKey()})
	return number
}

// postHello sends the first message over the rail.
func (q *sendQueue) postHello() {
	own := q.conn.hello()
	i := q.takeBuffer()
	b := own.appendTo(q.buffer(i)[:prefixBytes])
	q.addSlot(i, &prefix{kind: kindHello, number: q.rail.credit.records.take()}, len(b)-prefixBytes, false)
	q.post()
}
