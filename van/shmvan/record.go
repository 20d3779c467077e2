package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
)

// record is a record in the peer's ring. Its bytes can change under the reader, which copies what it reads before it
// checks it.
type record struct {
	kind  kind
	word  uint64
	head  uint32 // bytes of wire header and meta
	segs  uint32
	size  uint64 // bytes of payload
	bytes []byte
}

// read copies the numbers at the beginning of a record. It has whole lines, so there are some.
func (r *record) read(bytes []byte) {
	le := binary.LittleEndian
	r.head, r.segs, r.size, r.bytes = le.Uint32(bytes[recHead:]), le.Uint32(bytes[recSegs:]), le.Uint64(bytes[recSize:]), bytes
}

// writeRecord writes the numbers at the beginning of a record.
func writeRecord(bytes []byte, head, segs int, size int64) {
	le := binary.LittleEndian
	le.PutUint32(bytes[recHead:], uint32(head))
	le.PutUint32(bytes[recSegs:], uint32(segs))
	le.PutUint64(bytes[recSize:], uint64(size))
}

// bodyAt is where the body of a record begins, behind a head of n bytes.
func bodyAt(n int) int { return recBody + (n+7)&^7 }

// checkHead holds the length of the head against what peers may send.
func (r *record) checkHead(lim wire.Limits) error {
	switch limit := wire.HeaderSize + uint64(lim.Meta); {
	case r.head < wire.HeaderSize:
		return errs.Protocol("header", 0, "cut off: %d of %d bytes", r.head, wire.HeaderSize)
	case uint64(r.head) > limit:
		return errs.Protocol("head", 0, "%d bytes, limit %d", r.head, limit)
	}
	return nil
}

// headBytes is the head of a record that has it whole.
func (r *record) headBytes(lim wire.Limits) ([]byte, error) {
	if err := r.checkHead(lim); err != nil {
		return nil, err
	}
	if uint64(r.head) > uint64(len(r.bytes)-recBody) {
		return nil, errs.Protocol("head", 0, "%d bytes do not fit the record", r.head)
	}
	return r.bytes[recBody : recBody+r.head], nil
}

// payload is the payload of an inline record, behind a head that has been checked.
func (r *record) payload() ([]byte, error) {
	body := r.bytes[bodyAt(int(r.head)):]
	if r.size > uint64(len(body)) {
		return nil, errs.Protocol("payload", 0, "longer than its record")
	}
	return body[:r.size], nil
}

// segments copies the list of segments, behind a head that has been checked, and appends it to segs. Together they are
// the payload.
func (r *record) segments(segs []segment) ([]segment, error) {
	body, left := r.bytes[bodyAt(int(r.head)):], r.size
	if r.segs > maxSegments || int(r.segs)*segBytes > len(body) {
		return nil, errs.Protocol("segments", 0, "%d do not fit the record", r.segs)
	}
	le := binary.LittleEndian
	for i := range r.segs {
		b := body[segBytes*i:]
		x := segment{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
		if x.n > left {
			return nil, errs.Protocol("segments", 0, "longer than the payload")
		}
		if left -= x.n; x.n > 0 {
			segs = append(segs, x)
		}
	}
	if left > 0 {
		return nil, errs.Protocol("segments", 0, "shorter than the payload")
	}
	return segs, nil
}
