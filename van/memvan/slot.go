package memvan

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// slot is one receive credit of an endpoint and the delivery that uses it.
type slot struct {
	delivery van.Delivery
	ep       *endpoint
	buf      []byte // header and meta of the delivery
	along    []byte // payload that has come with them
	out      bool   // with the caller; guarded by conn.mu
}

// ReleaseDelivery implements van.Releaser.
func (s *slot) ReleaseDelivery(*van.Delivery) {
	e := s.ep
	e.conn.mu.Lock()
	defer e.conn.unlock()
	if !s.out {
		return
	}
	e.freeSlot(s)
	if e.starved {
		e.starved = false
		e.ready()
	}
}

// takeSlot returns a credit, or nil while all of them are out.
func (e *endpoint) takeSlot() *slot {
	if n := len(e.slots); n > 0 {
		s := e.slots[n-1]
		e.slots = e.slots[:n-1]
		s.out = true
		return s
	}
	if e.made == e.van.opt.Credits {
		e.starved = true
		return nil
	}
	e.made++
	return &slot{ep: e, out: true}
}

func (e *endpoint) freeSlot(s *slot) {
	s.out = false
	s.delivery = van.Delivery{}
	if cap(s.buf) > keepBuffer {
		s.buf = nil
	}
	e.slots = append(e.slots, s)
}

// open reads header and meta of the message that was put into s.buf. size is
// the number of payload bytes that came with it.
func (s *slot) open(lim wire.Limits, size int64) error {
	d := &s.delivery
	if err := d.Header.Decode(s.buf, lim); err != nil {
		return err
	}
	d.Meta = s.buf[wire.HeaderSize:]
	d.Releaser = s
	switch {
	case int(d.Header.Meta) != len(d.Meta):
		return &stepvan.ProtocolError{Field: "meta", Reason: "length differs from what came with the header"}
	case d.Header.Payload != uint64(size):
		return &stepvan.ProtocolError{Field: "payload", Reason: "length differs from what came with the header"}
	}
	return wire.Verify(s.buf[:wire.HeaderSize], d.Meta)
}
