package shmvan

import (
	"encoding/binary"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// slot is one delivery with the memory of its header and meta. It is its delivery's Releaser.
type slot struct {
	delivery van.Delivery
	buf      []byte
	index    uint
	pool     *credits
}

// maxKeptBytes is the capacity up to which a slot keeps its memory.
const maxKeptBytes = 64 << 10

// ReleaseDelivery implements van.Releaser. Any goroutine, also after Close.
func (s *slot) ReleaseDelivery(d *van.Delivery) {
	if cap(s.buf) > maxKeptBytes {
		s.buf = nil
	}
	d.Meta, d.Payload, d.Refused, d.Written = nil, nil, nil, false
	s.pool.release(s.index)
}

// readHead copies the head out of the ring, once, and checks it.
func (s *slot) readHead(r *record, lim wire.Limits) (size uint64, err error) {
	le := binary.LittleEndian
	n := uint64(le.Uint32(r.bytes[recHead:]))
	size = le.Uint64(r.bytes[recSize:])
	if err := checkHeadLength(n, lim); err != nil {
		return 0, err
	}
	if n > uint64(len(r.bytes)-recBody) {
		return 0, &stepvan.ProtocolError{Field: "head", Reason: fmt.Sprintf("%d bytes do not fit the record", n)}
	}
	s.buf = append(s.buf[:0], r.bytes[recBody:recBody+n]...)
	return size, s.decode(size, lim)
}

// checkHeadLength holds the length of a head against what peers may send.
func checkHeadLength(n uint64, lim wire.Limits) error {
	switch limit := wire.HeaderSize + uint64(lim.Meta); {
	case n < wire.HeaderSize:
		return &stepvan.ProtocolError{Field: "header", Reason: fmt.Sprintf("cut off: %d of %d bytes", n, wire.HeaderSize)}
	case n > limit:
		return &stepvan.ProtocolError{Field: "head", Reason: fmt.Sprintf("%d bytes, limit %d", n, limit)}
	}
	return nil
}

// decode makes a delivery of the head in the slot, which comes with size bytes of payload.
func (s *slot) decode(size uint64, lim wire.Limits) error {
	d := &s.delivery
	d.Releaser = s
	if err := d.Header.Decode(s.buf, lim); err != nil {
		return err
	}
	d.Meta = s.buf[wire.HeaderSize:]
	switch {
	case int(d.Header.Meta) != len(d.Meta):
		return &stepvan.ProtocolError{Field: "meta", Reason: "length differs from what came with the header"}
	case d.Header.Payload != size:
		return &stepvan.ProtocolError{Field: "payload", Reason: "length differs from what came with the header"}
	}
	return nil
}

// inlinePayload is the payload of an inline record.
func (s *slot) inlinePayload(r *record, size uint64) ([]byte, error) {
	body := r.bytes[recBody+(len(s.buf)+7)&^7:]
	if size > uint64(len(body)) {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: "longer than its record"}
	}
	return body[:size], nil
}

// inMessage is the largest payload that is delivered with its message. Above, a second copy costs more than to ask
// where the payload belongs.
const inMessage = 1 << 10

// appendPayload copies the payload of an inline record behind the head.
func (s *slot) appendPayload(r *record, size uint64) error {
	body, err := s.inlinePayload(r, size)
	if err != nil {
		return err
	}
	n := len(s.buf)
	s.buf = append(s.buf, body...)
	s.delivery.Meta, s.delivery.Payload = s.buf[wire.HeaderSize:n:n], s.buf[n:]
	return nil
}

// scatterInline copies the payload of an inline record to dst.
func (s *slot) scatterInline(r *record, dst [][]byte, size uint64) error {
	body, err := s.inlinePayload(r, size)
	if err == nil {
		scatter(dst, body)
	}
	return err
}

// scatter copies from into dst and returns what of dst is left. dst has room for it.
func scatter(dst [][]byte, from []byte) [][]byte {
	for len(from) > 0 {
		n := bulk.Copy(dst[0], from)
		from = from[n:]
		if n == len(dst[0]) {
			dst = dst[1:]
		} else {
			dst[0] = dst[0][n:]
		}
	}
	return dst
}

// readSegments copies the list of segments out of the ring, behind segs. Together they are the payload.
func (s *slot) readSegments(r *record, size uint64, segs []segment) ([]segment, error) {
	le := binary.LittleEndian
	body := r.bytes[recBody+(len(s.buf)+7)&^7:]
	n := uint64(le.Uint32(r.bytes[recSegs:]))
	if n > maxSegments || n*segBytes > uint64(len(body)) {
		return segs, &stepvan.ProtocolError{Field: "segments", Reason: fmt.Sprintf("%d do not fit the record", n)}
	}
	for i := range n {
		b := body[segBytes*i:]
		x := segment{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
		if x.n > size {
			return segs, &stepvan.ProtocolError{Field: "segments", Reason: "longer than the payload"}
		}
		if size -= x.n; x.n > 0 {
			segs = append(segs, x)
		}
	}
	if size > 0 {
		return segs, &stepvan.ProtocolError{Field: "segments", Reason: "shorter than the payload"}
	}
	return segs, nil
}
