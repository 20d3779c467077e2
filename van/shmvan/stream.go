package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/bulk"
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
	at     int    // the first of segs that is not in the ring
	left   int64  // bytes of segs that are not
	memory []byte // of long heads
}

// chunkBytes is the most payload of one kindChunk record. A quarter of the ring always finds its place, whatever the
// end of the ring wastes.
const chunkBytes = 32 << 10

// sendStream sends the payload through the ring, piece by piece. mu is held.
func (s *sender) sendStream(o *operation, m *van.Message, size int64) error {
	rec, _, err := s.put(m, size, 0, 0)
	if err != nil {
		return err
	}
	st := &s.stream
	st.begun++
	o.streamed = st.begun
	s.commit(m, o, rec, kindStream)
	st.active = true
	st.segs, st.at, st.left = append(st.segs[:0], m.Payload...), 0, size
	s.writeChunks()
	st.moveToSpare(m.Spare)
	return nil
}

// sendLong sends a message whose head fits no record. written: the payload lies in granted memory already. mu is held.
func (s *sender) sendLong(o *operation, m *van.Message, size int64, written bool) error {
	rec, err := s.out.begin(align(recBody))
	if rec == nil {
		return noRoom(err)
	}
	flag := uint32(0)
	if written {
		flag = 1
	}
	le := binary.LittleEndian
	le.PutUint32(rec[recHead:], uint32(len(m.Head)))
	le.PutUint32(rec[recSegs:], flag)
	le.PutUint64(rec[recSize:], uint64(size))
	st := &s.stream
	st.begun++
	o.streamed = st.begun
	s.commit(m, o, rec, kindLong)
	st.active = true
	st.memory = append(st.memory[:0], m.Head...) // the caller may reuse m.Head
	st.head = len(st.memory)
	st.segs, st.at, st.left = append(st.segs[:0], st.memory), 0, int64(st.head)
	if !written {
		st.segs = append(st.segs, m.Payload...)
		st.left += size
	}
	s.writeChunks()
	if !written {
		st.moveToSpare(m.Spare)
	}
	return nil
}

// moveToSpare moves what is not in the ring yet of a payload to memory that stays. nil: the payload itself does.
func (st *stream) moveToSpare(memory []byte) {
	if !st.active || memory == nil {
		return
	}
	first := st.at
	if st.head > 0 {
		first++ // the stream keeps the head itself
	}
	n := gather(memory, st.segs[first:])
	clear(st.segs[first:])
	st.segs = append(st.segs[:first], memory[:n])
}

// gather copies segments to one piece of memory, which has room for them, and returns their bytes.
func gather(to []byte, segs [][]byte) (n int) {
	for _, p := range segs {
		n += bulk.Copy(to[n:], p)
	}
	return n
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
		st.next(rec[recBody : recBody+n])
		st.left -= int64(n)
		st.head = max(0, st.head-n)
		s.out.publish(len(rec), kindChunk, wordWake)
	}
	s.updateDue()
}

// next moves the next bytes into to.
func (st *stream) next(to []byte) {
	for len(to) > 0 {
		k := bulk.Copy(to, st.segs[st.at])
		if to, st.segs[st.at] = to[k:], st.segs[st.at][k:]; len(st.segs[st.at]) == 0 {
			st.at++
		}
	}
}
