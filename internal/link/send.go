package link

import (
	"errors"
	"fmt"
	"math"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// LockedBytes is the largest payload for which callers of SendAll keep a lock of their own. Sending it takes less time
// than releasing the lock and taking it again.
const LockedBytes = 16 << 10

// briefBytes is the largest payload that is sent without telling the engine, which costs two clock reads. A larger send
// may last over 40 us, and the engine would count that as absence of the program.
const briefBytes = 64 << 10

var errQueueFull = fmt.Errorf("too many messages wait for this peer: %w", stepvan.ErrWouldBlock)

// sender is the sending side of a session. Session.mu guards it.
type sender struct {
	session     *Session
	incarnation uint32 // own, as told in the handshake
	held        bool   // nothing is sent before the answer to the handshake
	stuck       bool   // counted in Transport.stuck
	filled      uint16 // bit c: lanes[c] is not empty
	peerID      wire.PeerID
	waiting     int    // messages in lanes
	sequence    uint64 // of the last accepted frame
	peerAck     uint64 // highest sequence that the peer has acknowledged
	inVan       uint64 // payload bytes that the van holds
	posted      uint64 // messages that the van has taken, those of the link itself included
	credit      sendCredit
	frames      frameTable
	unacked     queue[frame] // frames that the peer has not acknowledged, in order of sequence
	msg         van.Message

	// Of messages that wait.
	lanes          [Channels]queue[Outbound] // of channel c
	sources        holds                     // on the memory of messages that have begun, and are not all in the van
	nextChannel    int                       // that is asked first, after ChannelControl
	unsaved        int                       // of those in lanes, those whose payload is still to be moved to Outbound.Spare
	interleaveLeft int                       // next pieces that are still cut small: another channel had to pass lately

	overdue  uint64 // sequence of the frame that was unacknowledged at the last turn of the reminder
	reminded uint64 // sequence of the last frame of which the peer was reminded
}

// Send accepts o, or returns an error without effect. The error is stepvan.ErrWouldBlock when too many messages wait
// for room, and stepvan.ErrInvalid when o exceeds a limit. After the end it is stepvan.ErrPeerLost, ErrLeft or
// stepvan.ErrClosed. Send never blocks, and does not allocate. It sends what the van takes at once on the caller's
// goroutine.
func (s *Session) Send(o *Outbound) error {
	if o.Haste.Prompt {
		if err := s.out.prepare(o, 0); err != nil {
			return err
		}
		s.out.write(o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.admit(o, 0); err != nil {
		return err
	}
	// A device that is software moves the bytes within the call.
	long := o.total > briefBytes && o.use != targetsWritten || s.caps.Offload
	if long {
		s.transport.engine.BeginCall()
	}
	if !s.out.sendAlone(o) {
		s.out.enqueue(o)
		s.out.pump()
		s.out.copyToSpare()
	}
	if long {
		s.transport.engine.EndCall()
	}
	return nil
}

// SendAll sends os[i] on ss[i]. All are accepted, or none. It does not allocate.
func (t *Transport) SendAll(ss []*Session, os []*Outbound) error {
	if len(ss) != len(os) {
		return errs.Invalid("%d messages for %d sessions", len(os), len(ss))
	}
	if len(ss) == 1 {
		return ss[0].Send(os[0])
	}
	spare, prompt := false, false
	for _, o := range os {
		spare, prompt = spare || o.Spare != nil, prompt || o.Haste.Prompt
	}
	if prompt {
		if err := writeAll(ss, os); err != nil {
			return err
		}
	}
	if err := t.enqueueAll(ss, os); err != nil {
		return err
	}
	t.engine.BeginCall()
	for _, s := range ss {
		s.mu.Lock()
		s.out.pump()
		s.mu.Unlock()
	}
	if spare { // after all have begun: copying what is left of one delays no other
		for _, s := range ss {
			s.mu.Lock()
			s.out.copyToSpare()
			s.mu.Unlock()
		}
	}
	t.engine.EndCall()
	return nil
}

// admit tells whether o can be accepted behind so many others of the same call. It resets o, unless o is Prompt and was
// prepared and written before.
func (x *sender) admit(o *Outbound, others int) error {
	switch s := x.session; {
	case !o.Haste.Prompt:
		return x.check(o, others)
	case s.state != stateOpen:
		return s.refusal()
	}
	return x.checkRoom(others)
}

// check tells whether o can be accepted behind so many others of the same call, and resets it.
func (x *sender) check(o *Outbound, others int) error {
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
	if err := o.checkTargets(&s.caps); err != nil {
		return err
	}
	o.reset()
	if err := o.checkSpare(); err != nil {
		return err
	}
	if o.total > options.Limits.Message {
		return errs.Invalid("message of %d bytes, limit %d: raise STEPVAN_MAX_MESSAGE_BYTES on every node", o.total, options.Limits.Message)
	}
	return x.checkRoom(others)
}

// CheckRoom returns stepvan.ErrWouldBlock if SendAll would refuse a message on each of ss because too many wait there.
// A caller that copies much for its messages asks before. Any goroutine.
func CheckRoom(ss []*Session) error {
	for i, s := range ss {
		if err := s.out.checkRoomLocking(count(ss[:i], s)); err != nil {
			return err
		}
	}
	return nil
}

func (x *sender) checkRoomLocking(others int) error {
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	return x.checkRoom(others)
}

// checkRoom refuses a message, behind so many others of the same call, when too many wait.
func (x *sender) checkRoom(others int) error {
	if x.waiting+others >= x.session.transport.options.QueueMessages {
		return errQueueFull
	}
	return nil
}

// sendAlone sends o past the lanes if nothing else waits. false: o, or what is left of it, must be queued. Most
// messages go whole.
func (x *sender) sendAlone(o *Outbound) bool {
	return x.filled == 0 && !x.held && !x.vanIsFull(o) && x.credit.covers(o) && x.sendFrame(o) && o.allFramed
}

// sendFrame sends the next piece of o. false: the van has no room, or is gone.
func (x *sender) sendFrame(o *Outbound) bool {
	s := x.session
	f := x.frames.take()
	before := o.cursor
	n := o.cut(f, min(x.pieceSize(o), s.caps.MaxPayload), s.caps.MaxSegments)
	if s.caps.Registered && n < o.total && !x.sources.take(s.transport.Registry, o) {
		x.frames.put(f)
		o.cursor = before
		return x.mayRetry(o, errNotRegistered)
	}
	h := wire.Header{
		Kind: wire.KindData, Op: o.Op, Flags: o.flagsOf(n), Channel: o.Channel, Sequence: x.sequence + 1,
		Request: o.Request, Generation: o.Generation, Pushes: o.Pushes, Pulls: o.Pulls,
		Payload: n, Total: o.total, Offset: o.sent,
	}
	meta := o.Meta
	if o.sent > 0 {
		meta = nil
	}
	x.msg.Spare = o.spareOf(n)
	if o.use == targetsWritten {
		x.msg.Written = int64(n)
	}
	done, err := x.post(f, &h, meta)
	x.msg.Spare, x.msg.Written = nil, 0
	if err != nil {
		o.cursor = before
		return x.mayRetry(o, err)
	}
	x.sequence++
	f.sequence, f.out, f.completed = x.sequence, o, done
	if !done {
		if o.use != targetsWritten {
			f.size = n
			x.inVan += n
		}
		o.inflight++
	}
	if o.sent == 0 && credited(o.Channel) {
		x.credit.used += charge(o.total, x.credit.window)
	}
	o.sent += n
	if o.total > 0 {
		x.credit.requested = false // the peer drops the request when payload comes (receiver.onData)
	}
	x.unacked.push(f, &f.link)
	if o.sent == o.total {
		f.last, o.allFramed = true, true
		x.sources.release(s.transport.Registry, o)
		if o.Timed {
			o.posted = now()
		}
	}
	return true
}

// mayRetry reports whether o, which the van has refused, may be offered again at once.
func (x *sender) mayRetry(o *Outbound, err error) bool {
	if o.use != targetsUsed || !isRefusedTarget(err) {
		return false
	}
	if o.sent == 0 && !o.Direct {
		o.use = targetsUnused
		return true
	}
	// The peer does not look at what was written so far, and nothing but a device reaches memory of an accelerator.
	x.session.Drop(fmt.Errorf("a target was refused while a message was being written: %w", err))
	return false
}

var errNotRegistered = fmt.Errorf("its source is not registered: %w", stepvan.ErrNotSupported)

// isRefusedTarget reports whether err, of a message with targets, is about one of them: the grant is withdrawn, does
// not cover it, or cannot be mapped. The peer has named it, so a mistake there must not stop other messages.
func isRefusedTarget(err error) bool {
	return errors.Is(err, stepvan.ErrStale) || errors.Is(err, stepvan.ErrInvalid) || errors.Is(err, stepvan.ErrNotSupported)
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
	piece, caps := x.session.transport.options.PieceBytes, &x.session.caps
	switch {
	case o.use == targetsWritten:
		return math.MaxInt64
	case o.saving.due && caps.OneSided:
		return max(1, piece/2) // the peer copies one out of Spare while the next is copied there
	case x.filled&^(1<<o.Channel) != 0:
		return piece
	case o.total <= wholePieces*uint64(piece):
		return wholePieces * piece
	case x.interleaveLeft > 0:
		x.interleaveLeft--
		return piece
	case caps.OneSided && !caps.Offload:
		return piece // each is copied within the call
	}
	return wholePieces * piece
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
	x.posted++
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
