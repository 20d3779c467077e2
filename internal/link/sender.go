package link

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// sender is the sending side of a session. Session.mu guards it.
type sender struct {
	session        *Session
	incarnation    uint32 // own, as told in the handshake
	peerID         wire.PeerID
	blocked        bool // the answer to the handshake goes before anything else
	stuck          bool // counted in Transport.stuck
	filled         uint16
	lanes          [Channels]queue[Outbound] // of channel c; bit c of filled: it is not empty
	nextChannel    int                       // that is asked first, after ChannelControl
	waiting        int                       // messages in lanes
	unsaved        int                       // of these, those whose payload is still to be moved to Outbound.Spare
	interleaveLeft int                       // pieces of long messages that are still cut to let other channels pass
	credit         sendCredit
	frames         frameTable
	unacked        queue[frame] // frames that the peer has not acknowledged, in order of sequence
	sequence       uint64       // of the last accepted frame
	peerAck        uint64       // highest sequence that the peer has acknowledged
	inVan          uint64       // payload bytes that the van holds
	msg            van.Message
	overdue        uint64 // sequence of the frame that was unacknowledged at the last turn of the reminder
	reminded       uint64 // sequence of the last frame of which the peer was reminded
}

// prepare checks whether o can be accepted behind so many others of the same call, and resets it.
func (x *sender) prepare(o *Outbound, others int) error {
	s, options := x.session, &x.session.transport.options
	if s.state != stateOpen {
		return s.refusal()
	}
	if o.Channel >= Channels {
		return errs.Invalid("channel %d, there are %d", o.Channel, Channels)
	}
	if most := min(s.caps.MaxMeta, int(options.Limits.Meta)); len(o.Meta) > most {
		return errs.Invalid("descriptors take %d bytes, limit %d: send fewer tensors at once or raise STEPVAN_MAX_HEADER_BYTES", len(o.Meta), most)
	}
	if err := o.checkTargets(s.caps.OneSided); err != nil {
		return err
	}
	o.reset()
	if err := o.checkSpare(); err != nil {
		return err
	}
	if o.total > options.Limits.Message {
		return errs.Invalid("message of %d bytes, limit %d: raise STEPVAN_MAX_MESSAGE_BYTES on every node", o.total, options.Limits.Message)
	}
	if x.waiting+others >= options.QueueMessages {
		return errQueueFull
	}
	return nil
}

// enqueue puts o on the lane of its channel.
func (x *sender) enqueue(o *Outbound) {
	x.lanes[o.Channel].push(o, &o.link)
	x.filled |= 1 << o.Channel
	x.waiting++
	if o.unsaved {
		x.unsaved++
	}
	if x.filled != 1<<o.Channel {
		x.interleaveLeft = interleavedPieces
	}
}

// sendAlone sends all of o past the lanes, if nothing else waits and the van takes it. Most messages go this way.
func (x *sender) sendAlone(o *Outbound) bool {
	return x.filled == 0 && !x.blocked && !x.holdsEnough(o) && x.credit.covers(o) && x.sendPiece(o) && o.allFramed
}

// copyToSpare moves the payload of all that waits to Outbound.Spare, where there is one. It looks at all messages,
// since one that was sent meanwhile may belong to its caller again.
func (x *sender) copyToSpare() {
	for filled := x.filled; x.unsaved > 0 && filled != 0; filled &= filled - 1 {
		for l := x.lanes[bits.TrailingZeros16(filled)].head; l != nil; l = l.next {
			if l.of.unsaved {
				l.of.copyToSpare()
				x.unsaved--
			}
		}
	}
}

// pump sends what the van takes.
func (x *sender) pump() {
	s := x.session
	if x.blocked || s.state != stateOpen && s.state != stateClosing {
		return
	}
	for x.filled != 0 {
		c := x.chooseLane()
		if c < 0 || !x.sendPiece(x.lanes[c].first()) {
			break
		}
		if lane := &x.lanes[c]; lane.first().allFramed {
			if o := lane.pop(); o.unsaved {
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
		if x.holdsEnough(o) {
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

// piecesInVan bounds the payload that the van gets ahead of its completion, in pieces: no other channel can overtake
// what the van holds.
const piecesInVan = 2

// holdsEnough reports whether o is large and the van holds enough of large messages.
func (x *sender) holdsEnough(o *Outbound) bool {
	piece := uint64(x.session.transport.options.PieceBytes)
	return x.inVan >= piecesInVan*piece && o.total-o.sent > piece/4
}

// requestCredit asks the peer to report each release at once, since this side waits for credit.
func (x *sender) requestCredit() {
	if !x.credit.requested {
		x.credit.requested, x.credit.overdue = x.sendOwn(wire.KindAck, wire.FlagAckNow, nil) == nil, false
	}
}

// sendPiece sends the next piece of o. false: the van has no room, or is gone.
func (x *sender) sendPiece(o *Outbound) bool {
	s := x.session
	f := x.frames.take()
	before := o.cursor
	n := o.cut(f, min(x.pieceSize(o), s.caps.MaxPayload), s.caps.MaxSegments)
	h := wire.Header{
		Kind: wire.KindData, Op: o.Op, Flags: o.Flags, Channel: o.Channel, Sequence: x.sequence + 1,
		Request: o.Request, Generation: o.Generation, Pushes: o.Pushes, Pulls: o.Pulls,
		Payload: n, Total: o.total, Offset: o.sent,
	}
	meta := o.Meta
	if o.sent > 0 {
		meta = nil
	}
	x.msg.Spare = nil
	if o.unsaved && n > 0 {
		x.msg.Spare = o.Spare[o.sent : o.sent+n : o.sent+n]
	}
	done, err := x.post(f, &h, meta)
	x.msg.Spare = nil
	if err != nil {
		o.cursor = before
		return x.mayRetry(o, err)
	}
	x.sequence++
	f.sequence, f.out, f.size, f.completed = x.sequence, o, n, done
	if !done {
		x.inVan += n
		o.inflight++
	}
	if o.sent == 0 && credited(o.Channel) {
		x.credit.used += charge(o.total, x.credit.window)
	}
	o.sent += n
	if o.total > 0 {
		x.credit.requested = false // the peer forgets the request when payload comes
	}
	x.unacked.push(f, &f.link)
	if o.sent == o.total {
		f.last, o.allFramed = true, true
		if o.Timed {
			o.posted = now()
		}
	}
	return true
}

// mayRetry reports whether o, which the van has refused, may be offered again at once.
func (x *sender) mayRetry(o *Outbound, err error) bool {
	if !errors.Is(err, stepvan.ErrStale) {
		return false
	}
	if o.sent == 0 && !o.untargeted {
		o.untargeted = true
		return true
	}
	// The peer does not look at what was written so far.
	x.session.Drop(fmt.Errorf("a grant was withdrawn while a message was being written: %w", err))
	return false
}

const (
	// wholePieces is how many pieces go as one when nothing else waits: each cut costs a header and a wake-up, and
	// helps nobody then.
	wholePieces = 4
	// interleavedPieces is how many pieces of longer messages are cut after a message of another channel had to pass:
	// others may follow it.
	interleavedPieces = 64
)

// pieceSize is the most that the next piece of o may have.
func (x *sender) pieceSize(o *Outbound) int64 {
	piece, oneSided := x.session.transport.options.PieceBytes, x.session.caps.OneSided
	switch {
	case o.unsaved && oneSided:
		return max(1, piece/2) // the peer copies one out of Spare while the next is copied there
	case x.filled&^(1<<o.Channel) != 0:
		return piece
	case o.total <= wholePieces*uint64(piece):
		return wholePieces * piece
	case x.interleaveLeft > 0:
		x.interleaveLeft--
		return piece
	case oneSided:
		return piece // each is copied within the call
	}
	return wholePieces * piece
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

// post encodes f and offers it to the van. done says that the van does not need f any more. On error f is recycled.
func (x *sender) post(f *frame, h *wire.Header, meta []byte) (done bool, err error) {
	s := x.session
	x.encode(f, h, meta)
	x.msg.Done, x.msg.More = false, h.Offset+h.Payload < h.Total
	x.msg.Op, x.msg.Head, x.msg.Payload, x.msg.Target = f.id(), f.head, f.segments, f.targets
	if err := s.ep.Send(&x.msg); err != nil {
		x.frames.put(f)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			s.transport.engine.SetStuck() // the van is about to report the loss
		}
		return false, err
	}
	s.acks.toldAck, s.acks.toldCredit = h.Ack, h.Credit
	return x.msg.Done, nil
}

// encode fills f.head with h and meta, and with the fields that every header of the session has.
func (x *sender) encode(f *frame, h *wire.Header, meta []byte) {
	s := x.session
	h.Source, h.Incarnation = s.transport.identity.Load().ID, x.incarnation
	h.Destination = x.peerID
	h.Epoch = s.transport.epoch.Load()
	h.Ack = s.acks.received
	h.Credit = s.acks.released.Load()
	f.head = append(f.head[:wire.HeaderSize], meta...)
	if s.caps.Sound {
		h.EncodeUnsummed(f.head, len(meta))
	} else {
		h.Encode(f.head, f.head[wire.HeaderSize:])
	}
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
