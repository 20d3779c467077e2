package shmvan

import (
	"encoding/binary"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/shm"
)

// producer writes records into the own ring. Guarded by connection.mu.
type producer struct {
	own      words
	peer     words
	pos      uint64 // bytes produced since the beginning
	consumed uint64 // of these, consumed by the peer when this side last read its word
	edge     shm.Edge

	headroom uint64 // bytes that can be under way while any record still finds its place
}

// mark is how much the peer must have consumed so that any record finds its place behind the next n bytes.
func (p *producer) mark(n int) uint64 {
	if end := p.pos + uint64(n); end > p.headroom {
		return end - p.headroom
	}
	return 0
}

// room is how many bytes are free, as far as this side knows.
func (p *producer) room() uint64 { return uint64(len(p.own.ring)) - (p.pos - p.consumed) }

// readConsumed reads how far the peer is.
func (p *producer) readConsumed() error {
	c := p.peer.consumed.Load()
	if c < p.consumed || c > p.pos || c%shm.LineBytes != 0 {
		return errs.Protocol("consumed", 0, "the peer claims to have read what was never sent")
	}
	p.consumed = c
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
		if err := p.readConsumed(); err != nil {
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
