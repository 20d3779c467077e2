package shmvan

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// segment is where a piece of payload lies: in a file of the sender, or at an address.
type segment struct{ file, at, n uint64 }

// Send implements van.Endpoint. Budget for a small message: no allocation, no system call unless the peer
// sleeps, one uncontended lock, one copy.
func (e *endpoint) Send(m *van.Message) error {
	size, err := e.check(m)
	if err != nil {
		return err
	}
	e.mu.Lock()
	err = e.send(m, size)
	if err == nil {
		e.wakeIfAsleep()
	}
	e.mu.Unlock()
	return err // what completes later is told by the peer, which wakes this side
}

// check holds m against Caps.
func (e *endpoint) check(m *van.Message) (size int64, err error) {
	for _, p := range m.Payload {
		size += int64(len(p))
	}
	caps := &e.v.caps
	switch {
	case len(m.Head) < wire.HeaderSize || len(m.Head)-wire.HeaderSize > caps.MaxMeta:
		err = errs.Invalid("head of %d bytes: a header has %d, meta at most %d", len(m.Head), wire.HeaderSize, caps.MaxMeta)
	case size > caps.MaxPayload:
		err = errs.Invalid("payload of %d bytes, at most %d", size, caps.MaxPayload)
	case len(m.Payload) > caps.MaxSegments:
		err = errs.Invalid("payload in %d segments, at most %d", len(m.Payload), caps.MaxSegments)
	case len(m.Target) > 0 && !caps.OneSided:
		err = stepvan.ErrNotSupported
	case len(m.Target) > 0 && len(m.Target) != len(m.Payload):
		err = errs.Invalid("%d targets for %d segments", len(m.Target), len(m.Payload))
	case m.Spare != nil && int64(len(m.Spare)) < size:
		err = errs.Invalid("%d bytes to spare for a payload of %d", len(m.Spare), size)
	}
	return size, err
}

// usable is nil while something can be sent. mu is held.
func (e *endpoint) usable() error {
	switch e.state.Load() {
	case stateClosed:
		return stepvan.ErrClosed
	case stateLost:
		return stepvan.ErrPeerLost
	}
	return nil
}

// send is Send with mu held.
func (e *endpoint) send(m *van.Message, size int64) error {
	if err := e.usable(); err != nil {
		return err
	}
	o := e.ops.next()
	if o == nil || e.stream.active {
		return stepvan.ErrWouldBlock
	}
	*o = operation{id: m.Op, keep: o.keep[:0]}
	if len(m.Target) > 0 && size > 0 {
		return e.sendWritten(o, m, size)
	}
	if len(m.Head) > e.v.opt.recordHead() {
		return e.sendLong(o, m, size, false)
	}
	if size <= int64(e.v.opt.InlineBytes) {
		return e.sendInline(o, m, size)
	}
	source := m.Payload
	if m.Spare != nil {
		e.spare[0] = m.Spare[:size]
		source = e.spare[:]
	}
	if k, ok := e.listSegments(source); ok {
		return e.sendReferred(o, m, source, size, k)
	}
	return e.sendStream(o, m, size)
}

// put writes a record with the head of m and returns where its body goes on, nil when there is no room.
func (e *endpoint) put(m *van.Message, size int64, segs, body int) (rec, rest []byte, err error) {
	at := recBody + (len(m.Head)+7)&^7
	rec, err = e.out.begin(align(at + body))
	if rec == nil {
		return nil, nil, e.full(err)
	}
	le := binary.LittleEndian
	le.PutUint32(rec[recHead:], uint32(len(m.Head)))
	le.PutUint32(rec[recSegs:], uint32(segs))
	le.PutUint64(rec[recSize:], uint64(size))
	copy(rec[recBody:], m.Head)
	return rec, rec[at:], nil
}

// full says why there is no room.
func (e *endpoint) full(err error) error {
	if err == nil {
		return stepvan.ErrWouldBlock
	}
	// The poller reports the loss with the cause; here it is enough to know.
	return stepvan.ErrPeerLost
}

// commit publishes the record of an operation. One that leaves less room than the largest record needs
// completes only when the peer has made that room: so whoever finds the ring full has a completion to wait for.
func (e *endpoint) commit(m *van.Message, o *operation, rec []byte, k kind) {
	flags := uint64(0)
	if mark := e.out.mark(len(rec)); mark > e.out.seen {
		_ = e.out.look() // a lie is found when room is needed
		if mark > e.out.seen {
			flags = wordTell
			o.consumed = mark
		}
	}
	e.out.publish(len(rec), k, flags)
	if m.Done = o.over(); !m.Done {
		e.ops.accept()
	}
}

func (e *endpoint) sendInline(o *operation, m *van.Message, size int64) error {
	rec, rest, err := e.put(m, size, 0, int(size))
	if err != nil {
		return err
	}
	for _, p := range m.Payload {
		rest = rest[copy(rest, p):]
	}
	e.commit(m, o, rec, kindInline)
	return nil
}

// refer finds out how the peer can read a source where it lies, and lists its segments. mu is held.
func (e *endpoint) listSegments(source [][]byte) (kind, bool) {
	e.segs = e.segs[:0]
	k := kindMapped
	for _, p := range source {
		if len(p) == 0 {
			continue
		}
		s, err := e.locate(p)
		if err != nil { // of this message: the next one asks again
			k = kindForeign
			break
		}
		e.segs = append(e.segs, s)
	}
	if k == kindMapped {
		return k, true
	}
	e.segs = e.segs[:0]
	for _, p := range source {
		if len(p) > 0 {
			e.segs = append(e.segs, segment{at: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), n: uint64(len(p))})
		}
	}
	return k, !e.v.opt.NoForeign && e.peerWords.reads.Load() != 0
}

// chart finds memory in a file that the peer has, or is given. stepvan.ErrWouldBlock: it cannot be given at this moment.
func (e *endpoint) locate(p []byte) (segment, error) {
	if e.v.opt.Files == nil {
		return segment{}, errNoFile
	}
	at, ok := e.v.opt.Files.Locate(p)
	if !ok {
		return segment{}, errNoFile
	}
	if err := e.offer(at.File, at.FD, len(at.Memory)); err != nil {
		return segment{}, err
	}
	return segment{at.File, uint64(at.Offset), uint64(len(p))}, nil
}

var errNoFile = fmt.Errorf("the memory lies in no file that can be shared: %w", stepvan.ErrNotSupported)

// sendReferred has the peer read the source where it lies, which is the payload or Message.Spare.
func (e *endpoint) sendReferred(o *operation, m *van.Message, source [][]byte, size int64, k kind) error {
	rec, rest, err := e.put(m, size, len(e.segs), segBytes*len(e.segs))
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for i, s := range e.segs {
		b := rest[segBytes*i:]
		le.PutUint64(b, s.file)
		le.PutUint64(b[8:], s.at)
		le.PutUint64(b[16:], s.n)
	}
	e.sourced++
	o.done = e.sourced
	o.keep = append(o.keep, source...) // an address alone keeps nothing alive
	if m.Spare != nil {
		gather(m.Spare, m.Payload)
	}
	e.commit(m, o, rec, k)
	return nil
}

// stream is a payload on its way through the ring. Guarded by endpoint.mu.
type stream struct {
	active bool
	begun  uint64 // streams so far
	head   int    // bytes of a long head that come first, in segs[0]
	segs   [][]byte
	at     int    // the first of segs that is not in the ring
	left   int64  // bytes of segs that are not
	memory []byte // of long heads
}

// chunkBytes is the most payload of one kindChunk record. A quarter of the ring always finds its place, whatever is wasted at the end.
const chunkBytes = 32 << 10

func (e *endpoint) sendStream(o *operation, m *van.Message, size int64) error {
	rec, _, err := e.put(m, size, 0, 0)
	if err != nil {
		return err
	}
	e.stream.begun++
	o.streamed = e.stream.begun
	e.commit(m, o, rec, kindStream)
	e.stream.active = true
	e.stream.segs, e.stream.at, e.stream.left = append(e.stream.segs[:0], m.Payload...), 0, size
	e.writeChunks()
	e.stream.spare(m.Spare)
	return nil
}

// spare moves what is not in the ring yet of a payload to memory that stays. nil: the payload itself does.
func (s *stream) spare(memory []byte) {
	if !s.active || memory == nil {
		return
	}
	first := s.at
	if s.head > 0 {
		first++ // behind the head, which the stream keeps itself
	}
	n := gather(memory, s.segs[first:])
	clear(s.segs[first:])
	s.segs = append(s.segs[:first], memory[:n])
}

// gather copies segments to one piece of memory, which has room for them, and returns their bytes.
func gather(to []byte, segs [][]byte) (n int) {
	for _, p := range segs {
		n += bulk.Copy(to[n:], p)
	}
	return n
}

// flow writes chunks while there is room. mu is held.
func (e *endpoint) writeChunks() {
	s := &e.stream
	for s.active {
		if s.left == 0 {
			s.active = false
			clear(s.segs)
			e.drained.Store(e.out.mark(0))
			e.streamed.Store(s.begun) // everything is in the ring
			e.v.wakePoller()
			break
		}
		n := int(min(s.left, chunkBytes, int64(len(e.out.own.ring)/4)))
		if s.head > 0 {
			n = min(n, s.head)
		}
		rec, err := e.out.begin(align(recBody + n))
		if err != nil || rec == nil {
			break
		}
		binary.LittleEndian.PutUint64(rec[recSize:], uint64(n))
		s.gather(rec[recBody : recBody+n])
		s.left -= int64(n)
		s.head = max(0, s.head-n)
		e.out.publish(len(rec), kindChunk, wordTell)
	}
	e.updateDue()
}

// gather moves the next bytes into to.
func (s *stream) gather(to []byte) {
	for len(to) > 0 {
		k := bulk.Copy(to, s.segs[s.at])
		if to, s.segs[s.at] = to[k:], s.segs[s.at][k:]; len(s.segs[s.at]) == 0 {
			s.at++
		}
	}
}

// noteDue has the poller come back for what waits for room. mu is held.
func (e *endpoint) updateDue() {
	due := e.stream.active || e.errands.waiting() || e.grants.waiting()
	if due != e.due.Load() {
		e.due.Store(due)
	}
}

// advance writes what waits for room, and ends withdrawals. It is called by the poller; when a Send is at it, that is as good.
func (e *endpoint) advance(out *sink) {
	if !e.due.Load() || !e.mu.TryLock() {
		return
	}
	if e.state.Load() == stateOpen && e.mapped {
		before := e.out.pos
		e.settle()
		e.reportGrants(out)
		e.sendDropped()
		e.writeChunks()
		if e.out.pos != before {
			e.v.moved = true
			e.wakeIfAsleep()
		}
	}
	e.mu.Unlock()
}
