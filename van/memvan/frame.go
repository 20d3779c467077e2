package memvan

import "github.com/stepvan/stepvan/van"

// keepBuffer is the largest buffer for header and meta that is kept for reuse.
const keepBuffer = 64 << 10

// frame is one message on its way. Guarded by conn.mu.
type frame struct {
	op        van.OpID
	number    uint64    // distinguishes the lives of a recycled frame
	head      []byte    // header and meta, owned by the frame
	source    [][]byte  // payload in the sender's memory
	size      int64     // bytes of payload
	posted    []posting // payload that the device is to write into the peer's memory
	along     []byte    // payload that travels with the head, owned by the frame
	written   bool      // payload is in the peer's memory already (one-sided)
	completed bool      // the sender has its completion
}

// isPosted reports whether the device has still to move payload of f.
func (f *frame) isPosted() bool { return len(f.posted) > 0 }

// intact reports whether the frame can be delivered without the sender's memory.
func (f *frame) intact() bool { return f.size == 0 || f.written && !f.isPosted() }

// fill makes f carry m. It keeps no reference to m or to its slices of slices.
func (f *frame) fill(m *van.Message, size int64, written bool) {
	f.op, f.size, f.written, f.completed = m.Op, size, written, false
	f.head, f.along = append(f.head[:0], m.Head...), f.along[:0]
	f.source = f.source[:0]
	switch {
	case written:
	case m.Spare != nil:
		scatter([][]byte{m.Spare}, m.Payload)
		f.source = append(f.source, m.Spare[:size])
	default:
		f.source = append(f.source, m.Payload...)
	}
}

// clear drops all references to memory of the sender.
func (f *frame) clear() {
	clear(f.source)
	clear(f.posted)
	f.source, f.posted = f.source[:0], f.posted[:0]
	if cap(f.head) > keepBuffer {
		f.head = nil
	}
}

// inbox is the frames on their way to an endpoint, from its peer. Guarded by conn.mu.
type inbox struct {
	ring[*frame]
	free    []*frame
	numbers uint64 // frames so far
}

// take returns a frame that is not in the ring yet.
func (b *inbox) take() *frame {
	b.numbers++
	var f *frame
	if n := len(b.free); n > 0 {
		f, b.free = b.free[n-1], b.free[:n-1]
	} else {
		f = &frame{}
	}
	f.number = b.numbers
	return f
}

// recycle keeps a frame that has left the ring.
func (b *inbox) recycle(f *frame) {
	f.clear()
	f.number = 0
	b.free = append(b.free, f)
}

// intact counts the frames at the front that need nothing from the sender.
func (b *inbox) intact() (n int) {
	for n < b.len() && (*b.at(n)).intact() {
		n++
	}
	return n
}

// scatter copies the segments of src into those of dst, which together are equally long.
func scatter(dst, src [][]byte) {
	var to []byte
	for _, from := range src {
		for len(from) > 0 {
			for len(to) == 0 {
				to, dst = dst[0], dst[1:]
			}
			n := copy(to, from)
			from, to = from[n:], to[n:]
		}
	}
}

func total(segments [][]byte) (n int64) {
	for _, s := range segments {
		n += int64(len(s))
	}
	return n
}
