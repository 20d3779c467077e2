package link

import (
	"math/bits"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
)

// enqueue puts o on the lane of its channel.
func (x *sender) enqueue(o *Outbound) {
	x.lanes[o.Channel].push(o, &o.link)
	x.filled |= 1 << o.Channel
	x.waiting++
	if o.saving.due {
		x.unsaved++
	}
	if x.filled != 1<<o.Channel {
		x.interleaveLeft = interleavedPieces
	}
}

// copyToSpare moves the payload of all that waits to Outbound.Spare, where there is one. It looks at all messages,
// since one that was sent meanwhile may belong to its caller again.
func (x *sender) copyToSpare() {
	for filled := x.filled; x.unsaved > 0 && filled != 0; filled &= filled - 1 {
		for l := x.lanes[bits.TrailingZeros16(filled)].head; l != nil; l = l.next {
			if l.of.saving.due {
				l.of.copyToSpare()
				x.unsaved--
			}
		}
	}
}

// pump sends what the van takes.
func (x *sender) pump() {
	s := x.session
	if x.held || s.state != stateOpen && s.state != stateClosing {
		return
	}
	for x.filled != 0 {
		c := x.chooseLane()
		if c < 0 || !x.sendFrame(x.lanes[c].first()) {
			break
		}
		if lane := &x.lanes[c]; lane.first().allFramed {
			if o := lane.pop(); o.saving.due {
				x.unsaved--
			}
			if lane.empty() {
				x.filled &^= 1 << c
			}
			x.waiting--
		}
	}
	if s.state == stateClosing && x.waiting == 0 && !s.goodbyeSent && s.opening.phase.open() {
		x.sendGoodbye()
	}
	x.noteStuck()
}

// sendGoodbye says goodbye, after which the session ends within a grace.
func (x *sender) sendGoodbye() {
	s := x.session
	if x.sendOwn(wire.KindGoodbye, 0, wire.AppendText(nil, s.goodbye)) == nil {
		s.goodbyeSent = true
		s.endAfterGrace(stepvan.ErrClosed)
	}
}

// chooseLane chooses the channel whose piece goes next: control first, the others in turn. -1: none may go.
func (x *sender) chooseLane() int {
	if x.filled&1 != 0 {
		return 0
	}
	needsCredit := false
	for turned := bits.RotateLeft16(x.filled, -x.nextChannel); turned != 0; turned &= turned - 1 {
		c := (x.nextChannel + bits.TrailingZeros16(turned)) % Channels
		o := x.lanes[c].first()
		if x.vanIsFull(o) {
			continue
		}
		if x.credit.covers(o) {
			x.nextChannel = c + 1
			return c
		}
		needsCredit = true
	}
	if needsCredit {
		x.requestCredit()
	}
	return -1
}

// piecesInVan bounds, in pieces, the payload that the van has not completed. Nothing overtakes what the van holds.
const piecesInVan = 2

// vanIsFull reports whether o must wait because the van still holds two pieces of large messages. Small messages, and
// headers alone, need not wait.
func (x *sender) vanIsFull(o *Outbound) bool {
	piece := uint64(x.session.transport.options.PieceBytes)
	most := piecesInVan * piece
	if x.session.caps.Offload {
		most *= wholePieces // two pieces as large as they get: the device must not wait for the next one
	}
	return x.inVan >= most && o.total-o.sent > piece/4 && o.use != targetsWritten
}

// requestCredit asks the peer to report each release at once, since this side waits for credit.
func (x *sender) requestCredit() {
	if !x.credit.requested {
		x.credit.requested, x.credit.overdue = x.sendOwn(wire.KindAck, wire.FlagAckNow, nil) == nil, false
	}
}

// sendOwn sends a message of the link itself.
func (x *sender) sendOwn(k wire.Kind, flags wire.Flags, meta []byte) error {
	return x.sendHeader(&wire.Header{Kind: k, Flags: flags}, meta)
}

func (x *sender) sendHeader(h *wire.Header, meta []byte) error {
	f := x.frames.take()
	done, err := x.post(f, h, meta)
	if done {
		x.frames.put(f)
	}
	return err
}

// noteStuck keeps the transport's count of sessions whose output is stuck.
func (x *sender) noteStuck() {
	s := x.session
	stuck := x.waiting > 0 || s.state == stateClosing && !s.goodbyeSent
	if stuck == x.stuck {
		return
	}
	x.stuck = stuck
	if stuck {
		s.transport.stuck.Add(1)
		s.transport.engine.SetStuck()
	} else if s.transport.stuck.Add(-1) == 0 {
		s.transport.engine.ClearStuck()
	}
}

// enqueueAll holds the locks of all sessions together. Only one caller per transport does so at a time, so that no two
// wait for each other. A session may be named more than once.
// +checklocksignore: the number of locks is not known before.
func (t *Transport) enqueueAll(ss []*Session, os []*Outbound) error {
	t.sendAllMu.Lock()
	defer t.sendAllMu.Unlock()
	var err error
	locked := 0
	for i, s := range ss {
		if count(ss[:i], s) == 0 {
			s.mu.Lock()
		}
		locked++
		if err = s.out.admit(os[i], count(ss[:i], s)); err != nil {
			break
		}
	}
	for i, s := range ss[:locked] {
		if err == nil {
			s.out.enqueue(os[i])
		}
	}
	for i, s := range ss[:locked] {
		if count(ss[:i], s) == 0 {
			s.mu.Unlock()
		}
	}
	return err
}

// count returns how often s is among ss.
func count(ss []*Session, s *Session) (n int) {
	for i := range ss {
		if ss[i] == s {
			n++
		}
	}
	return n
}
