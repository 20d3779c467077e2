package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/van"
)

// stream is a payload on its way through the ring. Before it comes the head, if that fits no record: a request can have
// thousands of tensors, whose descriptors are longer than a ring of reasonable size takes at once.
// Guarded by connection.mu.
type stream struct {
	active bool
	begun  uint64 // streams so far
	head   int    // bytes of a long head that come first, in segs[0]
	segs   [][]byte
	at     van.Cursor // the first byte of segs that is not in the ring
	left   int64      // bytes of segs that are not
	memory []byte     // of long heads
}

// chunkBytes is the most payload of one kindChunk record. A quarter of the ring always finds its place, whatever the
// end of the ring wastes.
const chunkBytes = 32 << 10

// sendStream sends the payload through the ring, piece by piece, behind the head when that is long. mu is held.
func (s *sender) sendStream(o *operation, m *van.Message, k kind, size int64) error {
	rec, _, err := s.put(m, size, 0, 0)
	if err == nil {
		s.beginStream(o, m, rec, k, size)
	}
	return err
}

// beginStream publishes the record of a stream of the given kind, with size bytes of payload, and writes what it can.
func (s *sender) beginStream(o *operation, m *van.Message, rec []byte, k kind, size int64) {
	st := &s.stream
	st.begun++
	o.streamed = st.begun
	s.commit(m, o, rec, k)
	st.active, st.segs, st.at, st.left = true, st.segs[:0], van.Cursor{}, size
	if k == kindLong {
		st.memory = append(st.memory[:0], m.Head...) // the caller may reuse m.Head
		st.head = len(st.memory)
		st.segs = append(st.segs, st.memory)
		st.left += int64(st.head)
	}
	if size > 0 {
		st.segs = append(st.segs, m.Payload...)
	}
	s.writeChunks()
	st.moveToSpare(m.Spare)
}

// moveToSpare moves what is not in the ring yet of a payload to memory that stays. nil: the payload itself does.
func (st *stream) moveToSpare(memory []byte) {
	if !st.active || memory == nil {
		return
	}
	from := st.at
	if st.head > 0 {
		from = van.Cursor{Segment: 1} // the stream keeps the head itself
	} else {
		st.at.Offset = 0
	}
	first, rest := from.Segment, memory[:st.left-int64(st.head)]
	from.Gather(rest, st.segs)
	clear(st.segs[first:])
	st.segs = append(st.segs[:first], rest)
}

// writeChunks writes chunks while there is room. mu is held.
func (s *sender) writeChunks() {
	st := &s.stream
	for st.active {
		if st.left == 0 {
			st.active = false
			clear(st.segs)
			s.drained.Store(s.out.mark(0))
			s.streamed.Store(st.begun) // everything is in the ring
			s.conn.van.wakePoller()
			break
		}
		n := int(min(st.left, chunkBytes, int64(len(s.out.own.ring)/4)))
		if st.head > 0 {
			n = min(n, st.head)
		}
		rec, err := s.out.begin(align(recBody + n))
		if err != nil || rec == nil {
			break
		}
		binary.LittleEndian.PutUint64(rec[recSize:], uint64(n))
		st.at.Gather(rec[recBody:recBody+n], st.segs)
		st.left -= int64(n)
		st.head = max(0, st.head-n)
		s.out.publish(len(rec), kindChunk, wordWake)
	}
	s.updateDue()
}
