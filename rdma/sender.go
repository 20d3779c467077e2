package rdma

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// sender is the sending side of an endpoint. Guarded by endpoint.mu, except waiting and pending.
type sender struct {
	e       *endpoint
	ops     operations
	waiting atomic.Bool // an operation is not all posted
	pending atomic.Bool // a record is not posted
	grants  grants
	peer    peerGrants
	control control
	windows windows

	fetches bool   // payload without target may be fetched by the peer
	offered uint32 // payloads so far that the peer is to fetch
	fetched fetched

	order    order        // of slots, where there may be several rails
	keys     int          // that this side tells of a piece of memory
	peerKeys int          // that the peer tells
	past     van.Counters // of rails that have gone

	written, streamed uint64 // bytes of payload: into grants, through slots
}

func (s *sender) init(e *endpoint, o *Options) {
	s.e = e
	s.ops.init(o.SendQueue, &e.v.regions)
	s.ops.several = e.several()
	s.fetches = !o.Windows
	s.order.s, s.order.oldest = s, 1
	s.control.s = s
	s.keys = 1
	if e.several() {
		s.keys = len(e.v.devices)
	}
}

// send accepts a message and posts what it can of it.
func (s *sender) send(m *van.Message) error {
	if s.full() {
		return stepvan.ErrWouldBlock
	}
	o := s.ops.push()
	o.begin(m)
	if err := s.findTargets(o, m); err != nil {
		s.ops.drop()
		return err
	}
	o.offer(s, m)
	s.advance()
	switch {
	case o.posted && !o.pinned && s.offered == s.ops.fetched && o.err == nil && s.ops.end == s.ops.next:
		s.ops.next--
		s.ops.drop()
		m.Done = true
	case m.Spare != nil:
		o.spare(m.Spare)
	}
	if s.completeOps(); len(s.ops.finished) > 0 {
		s.e.note() // what waited before this message is posted, and nothing else may tell the driver
	}
	return nil
}

// advance posts what has credit, with one doorbell for each rail.
func (s *sender) advance() {
	switch {
	case s.e.several():
		if s.order.move() {
			s.fillAll(s.order.spread)
		}
	case s.e.rails.first().ready.Load():
		s.fillAll(s.fill)
	default:
		return
	}
	s.e.rails.post()
	s.waiting.Store(s.ops.unposted() != nil || len(s.order.moving) > 0)
}

// fillAll fills slots with messages, as far as possible.
func (s *sender) fillAll(fill func(*operation) bool) {
	for o := s.ops.unposted(); o != nil && fill(o); o = s.ops.unposted() {
		s.ops.next++
	}
}

// resume posts what waited, and completes what needs nothing more. The memory of an endpoint that has ended may be
// gone.
func (s *sender) resume() {
	if s.e.state.Load()&(failed|closed) != 0 {
		return
	}
	s.pumpControl()
	s.advance()
	s.completeOps()
}

// completeOps finishes the operations that need nothing any more.
func (s *sender) completeOps() { s.ops.complete(s.e.rails.first().queue.requests.retired) }

// fill adds the slots of a message to the chain, and reports whether that was all of it.
func (s *sender) fill(o *operation) bool {
	r := s.e.rails.first()
	if !s.bindAll() || !s.addWrites(o) {
		return false
	}
	for !o.posted {
		i := r.takeSlot()
		if i < 0 {
			return false
		}
		p := prefix{number: r.credit.messages.take()}
		n := s.compose(o, r, &p, r.queue.buffer(i)[prefixBytes:r.slotBytes])
		o.until = r.queue.addSlot(i, &p, n, o.posted && o.pinned)
	}
	return true
}

// compose writes the next part of a message to a slot, with the grants that the peer does not know. It returns how many
// bytes that were.
func (s *sender) compose(o *operation, r *rail, p *prefix, b []byte) (n int) {
	p.kind = kindPart
	if !o.begun {
		o.begun = true
		p.kind, p.head, p.payload = kindMessage, uint32(len(o.head)), uint64(o.size)
		switch {
		case o.written:
			p.flags = flagWritten
		case o.fetch:
			p.flags = flagFetch
		}
	}
	p.count = s.appendGrants(r, b)
	n, left := p.count*grantSize(s.keys), o.left
	n += o.cut(b[n:])
	if !o.fetch {
		s.streamed += uint64(left - o.left)
	}
	return n
}

// findTargets finds the targets of a message, and the registered memory that they are written from.
func (s *sender) findTargets(o *operation, m *van.Message) error {
	for i, t := range m.Target {
		if t.IsZero() {
			continue
		}
		from := m.Payload[i]
		g, err := s.peer.find(t, int64(len(from)))
		if err != nil {
			return err
		}
		if len(from) == 0 {
			continue
		}
		r := s.e.v.regions.find(from)
		if r == nil {
			return errUnregistered
		}
		o.writes = append(o.writes, write{from: from, region: r, grant: g, remote: g.address + uint64(t.Offset)})
	}
	return nil
}

var errUnregistered = fmt.Errorf("send: a segment with a target is in memory that is not registered: call Register first: %w", stepvan.ErrNotSupported)

// addWrites adds the writes of a message to the chain, and reports whether those were all. A message whose grant is
// withdrawn meanwhile fails.
func (s *sender) addWrites(o *operation) bool {
	q := &s.e.rails.first().queue
	for o.next < len(o.writes) {
		w := &o.writes[o.next]
		if w.grant.gone {
			if o.err, o.posted = errWithdrawn, true; o.pinned {
				o.until = q.addMark()
			}
			return true
		}
		if q.requests.room() <= 0 {
			return false
		}
		n, number := q.addWrite(w, w.done, math.MaxInt64)
		o.until, o.pinned = number, true
		s.written += uint64(n)
		if w.done += n; w.done == int64(len(w.from)) {
			o.next++
		}
	}
	return true
}

var errWithdrawn = fmt.Errorf("send: the peer has withdrawn the grant of a target: %w", stepvan.ErrStale)

// cut copies the next part of a message, and returns how many bytes that were.
func (o *operation) cut(to []byte) int {
	n := copy(to, o.head[o.headAt:])
	o.headAt += n
	if k := min(int64(len(to)-n), o.left); k > 0 {
		o.at.Gather(to[n:n+int(k)], o.payload)
		o.left -= k
		n += int(k)
	}
	o.posted = o.headAt == len(o.head) && o.left == 0
	return n
}
