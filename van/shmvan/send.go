package shmvan

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// segment is where a piece of payload lies: in a file of the sender, or at an address.
type segment struct{ file, at, n uint64 }

// sender is the sending side of an endpoint. Guarded by connection.mu, except the atomic fields.
type sender struct {
	conn   *connection
	memory *peerMemory
	grants *grants

	out      producer
	sourced  uint64 // messages sent whose source the peer reads
	shared   sharedFiles
	stream   stream
	segs     []segment
	spare    [1][]byte                    // of the message that is being sent
	held     []*peerGrant                 // of a Send
	reported struct{ ack, credit uint64 } // by the last piece that was followed by others

	ops      operations
	due      atomic.Bool   // a stream, dropped files or withdrawals wait for the peer
	streamed atomic.Uint64 // streams that are in the ring whole
	drained  atomic.Uint64 // what the peer must have consumed so that there is room behind the last of them
}

// send chooses the way of the payload. mu is held, as in all functions below.
func (s *sender) send(m *van.Message, size int64) error {
	if err := s.conn.usable(); err != nil {
		return err
	}
	o := s.ops.next()
	if o == nil || s.stream.active {
		return stepvan.ErrWouldBlock
	}
	*o = operation{id: m.Op, keep: o.keep[:0]}
	switch {
	case m.Written > 0:
		rec, err := s.putWritten(m, size)
		if err == nil {
			s.commitWritten(o, m, rec)
		}
		return err
	case len(m.Target) > 0 && size > 0:
		return s.sendWritten(o, m, size)
	}
	if s.isLong(m) {
		return s.sendStream(o, m, kindLong, size)
	}
	if size <= int64(s.conn.van.opt.InlineBytes) {
		return s.sendInline(o, m, size)
	}
	source := m.Payload
	if m.Spare != nil {
		s.spare[0] = m.Spare[:size]
		source = s.spare[:]
	}
	if k, ok := s.listSegments(source); ok {
		return s.sendSegments(o, m, source, size, k)
	}
	return s.sendStream(o, m, kindStream, size)
}

// put writes a record with the head of m, unless that is long, and returns the place of its body.
func (s *sender) put(m *van.Message, size int64, segs, body int) (rec, rest []byte, err error) {
	head := m.Head
	if s.isLong(m) {
		head = nil
	}
	at := bodyAt(len(head))
	if rec, err = s.out.begin(align(at + body)); err != nil {
		return nil, nil, stepvan.ErrPeerLost // the poller reports the cause
	}
	if rec == nil {
		return nil, nil, stepvan.ErrWouldBlock
	}
	writeRecord(rec, len(m.Head), segs, size)
	copy(rec[recBody:], head)
	return rec, rec[at:], nil
}

// isLong reports whether the head of m fits no record.
func (s *sender) isLong(m *van.Message) bool { return len(m.Head) > s.conn.van.opt.recordHead() }

// commit publishes the record of an operation. A record that leaves less room than the largest one needs completes only
// when the peer has made that room. So a caller that finds the ring full has a completion to wait for.
func (s *sender) commit(m *van.Message, o *operation, rec []byte, k kind) {
	flags := uint64(0)
	if mark := s.out.mark(len(rec)); mark > s.out.consumed {
		_ = s.out.readConsumed() // begin finds a lie, when it needs room
		if mark > s.out.consumed {
			flags = wordWake
			o.consumed = mark
		}
	}
	s.out.publish(len(rec), k, flags)
	if m.Done = o.complete(); !m.Done {
		s.ops.accept()
	}
}

func (s *sender) sendInline(o *operation, m *van.Message, size int64) error {
	rec, rest, err := s.put(m, size, 0, int(size))
	if err != nil {
		return err
	}
	for _, p := range m.Payload {
		rest = rest[copy(rest, p):]
	}
	s.commit(m, o, rec, kindInline)
	return nil
}

// listSegments finds out how the peer can read a source where it lies, and lists its segments.
func (s *sender) listSegments(source [][]byte) (kind, bool) {
	s.segs = s.segs[:0]
	k := kindMapped
	for _, p := range source {
		if len(p) == 0 {
			continue
		}
		seg, err := s.locate(p)
		if err != nil { // for this message: the next one asks again
			k = kindForeign
			break
		}
		s.segs = append(s.segs, seg)
	}
	if k == kindMapped {
		return k, true
	}
	s.segs = s.segs[:0]
	for _, p := range source {
		if len(p) > 0 {
			s.segs = append(s.segs, segment{at: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), n: uint64(len(p))})
		}
	}
	return k, !s.conn.van.opt.NoForeign && s.out.peer.reads.Load() != 0
}

// sendSegments has the peer read the source where it lies, which is the payload or Message.Spare.
func (s *sender) sendSegments(o *operation, m *van.Message, source [][]byte, size int64, k kind) error {
	rec, rest, err := s.put(m, size, len(s.segs), segBytes*len(s.segs))
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for i, seg := range s.segs {
		b := rest[segBytes*i:]
		le.PutUint64(b, seg.file)
		le.PutUint64(b[8:], seg.at)
		le.PutUint64(b[16:], seg.n)
	}
	s.sourced++
	o.done = s.sourced
	o.keep = append(o.keep, source...) // an address alone keeps nothing alive
	if m.Spare != nil {
		new(van.Cursor).Gather(m.Spare[:size], m.Payload)
	}
	s.commit(m, o, rec, k)
	return nil
}

// sendWritten writes the payload into the peer's memory, and the record behind it.
func (s *sender) sendWritten(o *operation, m *van.Message, size int64) (err error) {
	held := s.held[:0]
	for i, t := range m.Target {
		var g *peerGrant
		if g, err = s.memory.use(t, int64(len(m.Payload[i])), van.RightWrite); err != nil {
			break
		}
		held = append(held, g)
	}
	if err == nil {
		err = s.writeTo(held, o, m, size)
	}
	for _, g := range held {
		g.release()
	}
	clear(held)
	s.held = held
	return err
}

// writeTo writes the payload, and tells the peer. It makes sure of room for the record before it writes anything.
func (s *sender) writeTo(held []*peerGrant, o *operation, m *van.Message, size int64) error {
	rec, err := s.putWritten(m, size)
	if err != nil {
		return err
	}
	whole := wire.TotalOf(m.Head)
	for i, t := range m.Target {
		bulk.CopyPart(held[i].mem[t.Offset:], m.Payload[i], whole)
	}
	s.commitWritten(o, m, rec)
	return nil
}

// putWritten makes the record of a payload that this side writes, for commitWritten to publish.
func (s *sender) putWritten(m *van.Message, size int64) (rec []byte, err error) {
	flag := 0
	if s.isLong(m) {
		flag = 1
	}
	rec, _, err = s.put(m, size, flag, 0)
	return rec, err
}

// commitWritten tells the peer of the payload, which is written.
func (s *sender) commitWritten(o *operation, m *van.Message, rec []byte) {
	if s.isLong(m) {
		s.beginStream(o, m, rec, kindLong, 0)
	} else {
		s.commit(m, o, rec, kindWritten)
	}
}

// refuse tells a peer of another version which one this is, as far as that is possible at once. Without mu.
func (s *sender) refuse() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.usable() != nil || s.stream.active {
		return
	}
	h := wire.Header{Kind: wire.KindRefuse}
	m := van.Message{Head: make([]byte, wire.HeaderSize)}
	h.Encode(m.Head, nil)
	if rec, _, err := s.put(&m, 0, 0, 0); err == nil {
		s.out.publish(len(rec), kindInline, 0)
	}
}

// isForLater reports whether a peer that sleeps may sleep on after m was sent. It may if m is a piece that leaves it
// nothing to do and tells it nothing, and this side depends on nothing of it. The last piece but one wakes it, since
// that takes time. mu is held.
func (s *sender) isForLater(m *van.Message, size int64) bool {
	if !m.More || !m.Done || wire.RestOf(m.Head) <= size {
		return false
	}
	before := s.reported
	s.reported.ack, s.reported.credit = wire.ReportsOf(m.Head)
	return s.reported == before
}

// updateDue has the poller come back for what waits for the peer.
func (s *sender) updateDue() {
	due := s.stream.active || len(s.shared.dropped) > 0 || s.grants.waiting()
	if due != s.due.Load() {
		s.due.Store(due)
	}
}

// advance writes what waits for room, and ends withdrawals. The poller calls it, without mu; it skips its turn while
// another goroutine has mu.
func (s *sender) advance(out *sink) {
	c := s.conn
	if !s.due.Load() || !c.mu.TryLock() {
		return
	}
	if c.state.Load() == stateOpen && c.mapped {
		before := s.out.pos
		s.grants.settle()
		s.grants.report(out)
		s.sendDropped()
		s.writeChunks()
		if s.out.pos != before {
			c.van.moved = true
			c.wakeIfAsleep()
		}
	}
	c.mu.Unlock()
}

// busy reports whether advance or complete would find something. Poller only, without mu, as what follows.
func (s *sender) busy() bool {
	if s.due.Load() && s.couldAdvance() {
		return true
	}
	r := s.ops.read.Load()
	return r != s.ops.written.Load() && s.finished(&s.ops.list[r&s.ops.mask])
}

// couldAdvance reports whether the peer has made room, or has ended its use of a grant.
func (s *sender) couldAdvance() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if !s.conn.mapped {
		return true
	}
	if s.grants.settle(); len(s.grants.completed) > 0 {
		return true
	}
	before := s.out.consumed
	return s.out.readConsumed() != nil || s.out.consumed != before
}

// checkPeerWords checks what the peer says to have done against what this side has sent.
func (s *sender) checkPeerWords() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if d := s.out.peer.done.Load(); d > s.sourced {
		return errs.Protocol("done", 0, "the peer claims to have read what was never sent")
	}
	return s.out.readConsumed()
}
