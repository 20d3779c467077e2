package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
)

// producer writes records into the own ring. Guarded by endpoint.mu.
type producer struct {
	own  words
	peer words
	pos  uint64 // bytes produced since the beginning
	seen uint64 // of these, consumed by the peer when it was last looked at
	edge shm.Edge

	headroom uint64 // bytes that can be under way while any record still finds its place
}

// mark is how much the peer must have consumed so that any record finds its place behind the next n bytes.
func (p *producer) mark(n int) uint64 {
	if end := p.pos + uint64(n); end > p.headroom {
		return end - p.headroom
	}
	return 0
}

// room is how many bytes are free as far as is known.
func (p *producer) room() uint64 { return uint64(len(p.own.ring)) - (p.pos - p.seen) }

// look asks the peer how far it is.
func (p *producer) look() error {
	c := p.peer.consumed.Load()
	if c < p.seen || c > p.pos || c%shm.LineBytes != 0 {
		return &stepvan.ProtocolError{Field: "consumed", Reason: "the peer claims to have read what was never sent"}
	}
	p.seen = c
	return nil
}

// begin returns n bytes for a record, a multiple of the line, or nil when the ring is full.
func (p *producer) begin(n int) ([]byte, error) {
	size := uint64(len(p.own.ring))
	at := p.pos & (size - 1)
	waste := uint64(0)
	if uint64(n) > size-at {
		waste = size - at
	}
	need := waste + uint64(n) + shm.LineBytes // the word behind the record is written too
	if need > p.room() {
		if err := p.look(); err != nil {
			return nil, err
		}
		if need > p.room() {
			return nil, nil
		}
	}
	if waste > 0 {
		p.publish(int(waste), kindSkip, 0)
		at = 0
	}
	return p.own.ring[at : at+uint64(n) : at+uint64(n)], nil
}

// publish makes the record of n bytes at the end visible.
func (p *producer) publish(n int, k kind, flags uint64) {
	mask := uint64(len(p.own.ring)) - 1
	at := p.pos & mask
	p.pos += uint64(n)
	binary.LittleEndian.PutUint64(p.own.ring[p.pos&mask:], 0)
	p.edge.Publish()
	shm.Word64(p.own.ring, int(at)).Store(uint64(n) | uint64(k)<<wordKind | flags | wordUsed)
}

// consumer reads records out of the peer's ring. Poller only.
type consumer struct {
	own         words
	peer        words
	pos         uint64
	announced   uint64 // pos as the peer knows it
	reportEvery uint64 // by how much that may be behind
	done        uint64 // messages whose source has been read
	wakeWanted  bool   // the peer wants to be woken
	moved       bool   // done has changed since the peer was told
	edge        shm.Edge
}

// record is a record in the peer's ring. Its bytes can change under the reader: what is
// read is copied first and looked at then.
type record struct {
	kind  kind
	bytes []byte
	word  uint64
}

// next returns the record at the front, if there is one.
func (c *consumer) next() (r record, ok bool, err error) {
	size := uint64(len(c.peer.ring))
	for {
		at := c.pos & (size - 1)
		w := shm.Word64(c.peer.ring, int(at)).Load()
		if w == 0 {
			return r, false, nil
		}
		n := w & wordSize
		r.kind, r.word = kind(w>>wordKind), w
		if w&wordUsed == 0 || n == 0 || n%shm.LineBytes != 0 || n > size-at || r.kind == 0 || r.kind >= kindEnd {
			return r, false, &stepvan.ProtocolError{Field: "record", Offset: int(at), Reason: "not a record"}
		}
		if r.kind == kindSkip {
			if n != size-at || at == 0 {
				return r, false, &stepvan.ProtocolError{Field: "record", Offset: int(at), Reason: "skips to the middle of the ring"}
			}
			c.pos += n
			continue
		}
		c.edge.Consume()
		r.bytes = c.peer.ring[at : at+n : at+n]
		return r, true, nil
	}
}

// waiting reports whether there is something to read.
func (c *consumer) waiting() bool {
	return shm.Word64(c.peer.ring, int(c.pos&(uint64(len(c.peer.ring))-1))).Load() != 0
}

// pass goes on behind r. sourced says that the peer waits for its source memory.
func (c *consumer) pass(r *record, sourced bool) {
	c.pos += r.word & wordSize
	if r.word&wordTell != 0 {
		c.wakeWanted = true
	}
	if sourced {
		c.source()
	}
}

// source has the peer told that the source memory of one more message is its again.
func (c *consumer) source() {
	c.done++
	c.moved = true
}

// report tells the peer how far this side is, when it waits for that, or has not heard of it for long. It returns
// whether a sleeping peer should be woken for it.
func (c *consumer) report() (wake bool) {
	if !c.wakeWanted && !c.moved && c.pos-c.announced < c.reportEvery {
		return false
	}
	c.announced = c.pos
	c.edge.Publish()
	if c.moved {
		c.own.done.Store(c.done)
	}
	c.own.consumed.Store(c.pos)
	wake = c.wakeWanted || c.moved
	c.wakeWanted, c.moved = false, false
	return wake
}
