package shmvan

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// A request can have thousands of tensors, and their descriptors be longer than a ring of reasonable size takes at
// once. They go through the ring in pieces, as a payload does that can go no other way.

// sendLong sends a message whose head fits no record. written: the payload lies in granted memory already. mu is held.
func (e *endpoint) sendLong(o *operation, m *van.Message, size int64, written bool) error {
	rec, err := e.out.begin(align(recBody))
	if rec == nil {
		return e.full(err)
	}
	flag := uint32(0)
	if written {
		flag = 1
	}
	le := binary.LittleEndian
	le.PutUint32(rec[recHead:], uint32(len(m.Head)))
	le.PutUint32(rec[recSegs:], flag)
	le.PutUint64(rec[recSize:], uint64(size))
	s := &e.stream
	s.begun++
	o.streamed = s.begun
	e.commit(m, o, rec, kindLong)
	s.active = true
	s.memory = append(s.memory[:0], m.Head...) // which is the caller's again
	s.head = len(s.memory)
	s.segs, s.at, s.left = append(s.segs[:0], s.memory), 0, int64(s.head)
	if !written {
		s.segs = append(s.segs, m.Payload...)
		s.left += size
	}
	e.writeChunks()
	if !written {
		s.spare(m.Spare)
	}
	return nil
}

// beginLong starts a message whose head follows.
func (e *endpoint) beginLong(s *slot, r *record) error {
	le := binary.LittleEndian
	n, flag, size := le.Uint32(r.bytes[recHead:]), le.Uint32(r.bytes[recSegs:]), le.Uint64(r.bytes[recSize:])
	if err := s.checkHeadLength(uint64(n), e.v.opt.Limits); err != nil {
		return err
	}
	if flag > 1 {
		return &stepvan.ProtocolError{Field: "record", Reason: fmt.Sprintf("flags %#x", flag)}
	}
	s.buf = s.buf[:0] // it grows with what comes
	f := &e.incoming
	f.slot, f.kind, f.left = s, r.kind, size
	f.head, f.written = int(n), flag == 1
	e.in.pass(r, false)
	return nil
}

// takeHead takes n bytes of a head, and goes on with the payload when it is whole.
func (e *endpoint) takeHead(out *sink, r *record, n uint64) error {
	f := &e.incoming
	if n > uint64(f.head) {
		return &stepvan.ProtocolError{Field: "chunk", Reason: fmt.Sprintf("%d bytes, and the head lacks %d", n, f.head)}
	}
	s := f.slot
	s.buf = append(s.buf, r.bytes[recBody:recBody+n]...)
	if f.head -= int(n); f.head > 0 {
		e.v.moved = true
		e.in.pass(r, false)
		return nil
	}
	d := &s.delivery
	if err := s.decode(f.left, e.v.opt.Limits); err != nil {
		return err
	}
	if f.left > 0 && !f.written {
		dst, err := e.place(d)
		if err != nil {
			return err
		}
		if e.state.Load() == stateOpen && d.Refused == nil {
			f.places = append(f.places[:0], dst...)
			f.dst = f.places
		}
		clear(dst)
	}
	if e.state.Load() != stateOpen {
		return nil
	}
	e.v.moved = true
	e.in.pass(r, false)
	if f.left == 0 || f.written {
		d.Written = f.written
		e.deliver(out)
	}
	return nil
}

// allow holds the length of a head against what peers may send.
func (s *slot) checkHeadLength(n uint64, lim wire.Limits) error {
	switch {
	case n < wire.HeaderSize:
		return &stepvan.ProtocolError{Field: "header", Reason: fmt.Sprintf("cut off: %d of %d bytes", n, wire.HeaderSize)}
	case n > wire.HeaderSize+uint64(lim.Meta):
		return &stepvan.ProtocolError{Field: "head", Reason: fmt.Sprintf("%d bytes, limit %d", n, wire.HeaderSize+uint64(lim.Meta))}
	}
	return nil
}
