package link

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
)

// Send accepts o, or returns an error without effect: stepvan.ErrWouldBlock when too
// many messages wait for room, stepvan.ErrPeerLost, ErrLeft or stepvan.ErrClosed after the
// end, stepvan.ErrInvalid when o exceeds a limit. It never blocks. What the van takes at once is
// sent on the caller's goroutine. It does not allocate.
func (s *Session) Send(o *Outbound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(o, 0); err != nil {
		return err
	}
	long := o.total > briefBytes
	if long {
		s.node.engine.BeginCall()
	}
	if !s.sendAlone(o) {
		s.enqueue(o)
		s.pump()
		s.shelter()
	}
	if long {
		s.node.engine.EndCall()
	}
	return nil
}

// sendAlone sends all of o if nothing else waits and the van takes it: the way of most messages, past the lanes. mu is held.
func (s *Session) sendAlone(o *Outbound) bool {
	return s.filled == 0 && !s.held && !s.tooDeep(o) && s.affordable(o) && s.emit(o) && o.framed
}

// LockedBytes is the payload up to which callers of SendAll keep a lock of their own: sending it is quicker than to
// give up the lock and take it again.
const LockedBytes = 16 << 10

// briefBytes is the payload up to which sending is too short to be told from an
// absence of the program (some 10 us of those 40 from which the engine counts one):
// two clock reads less per message.
const briefBytes = 64 << 10

// SendAll sends os[i] on ss[i]. All are accepted, or none. It does not allocate.
func (n *Transport) SendAll(ss []*Session, os []*Outbound) error {
	if len(ss) != len(os) {
		return errs.Invalid("%d messages for %d sessions", len(os), len(ss))
	}
	if len(ss) == 1 {
		return ss[0].Send(os[0])
	}
	spare := false
	for _, o := range os {
		spare = spare || o.Spare != nil
	}
	if err := n.enqueueAll(ss, os); err != nil {
		return err
	}
	n.engine.BeginCall()
	for _, s := range ss {
		s.mu.Lock()
		s.pump()
		s.mu.Unlock()
	}
	if spare { // after all have begun: copying what is left of one keeps no other waiting
		for _, s := range ss {
			s.mu.Lock()
			s.shelter()
			s.mu.Unlock()
		}
	}
	n.engine.EndCall()
	return nil
}

// shelter has the sources of all that waits be their callers' again, where there is memory to spare. It goes over all since
// one of them that has gone may be its caller's again. mu is held.
func (s *Session) shelter() {
	for filled := s.filled; s.exposed > 0 && filled != 0; filled &= filled - 1 {
		for o := s.lanes[bits.TrailingZeros16(filled)].head; o != nil; o = o.next {
			if o.exposed {
				o.shelter()
				s.exposed--
			}
		}
	}
}

// enqueueAll holds the locks of all sessions together; only one caller of the
// node does at a time, so that no two wait for each other. A session may be named more than once.
func (n *Transport) enqueueAll(ss []*Session, os []*Outbound) error {
	n.sendAllMu.Lock()
	defer n.sendAllMu.Unlock()
	var err error
	locked := 0
	for i, s := range ss {
		if count(ss[:i], s) == 0 {
			s.mu.Lock()
		}
		locked++
		if err = s.room(os[i], count(ss[:i], s)); err != nil {
			break
		}
	}
	for i, s := range ss[:locked] {
		if err == nil {
			s.enqueue(os[i])
		}
	}
	for i, s := range ss[:locked] {
		if count(ss[:i], s) == 0 {
			s.mu.Unlock()
		}
	}
	return err
}

// count says how often s is among ss.
func count(ss []*Session, s *Session) (n int) {
	for i := range ss {
		if ss[i] == s {
			n++
		}
	}
	return n
}

// room reports whether o could be accepted behind so many others of the same call. mu is held.
func (s *Session) room(o *Outbound, others int) error {
	if s.state != stateOpen {
		return s.refusal()
	}
	if o.Channel >= Channels {
		return errs.Invalid("channel %d, there are %d", o.Channel, Channels)
	}
	if len(o.Meta) > min(s.caps.MaxMeta, int(s.node.limits.Meta)) {
		return errs.Invalid("descriptors take %d bytes, limit %d: send fewer tensors at once or raise STEPVAN_MAX_HEADER_BYTES", len(o.Meta), min(s.caps.MaxMeta, int(s.node.limits.Meta)))
	}
	if err := o.checkTargets(s.caps.OneSided); err != nil {
		return err
	}
	o.begin()
	if err := o.checkSpare(); err != nil {
		return err
	}
	if o.total > s.node.limits.Message {
		return errs.Invalid("message of %d bytes, limit %d: raise STEPVAN_MAX_MESSAGE_BYTES on every node", o.total, s.node.limits.Message)
	}
	if s.pending+others >= s.node.queueMessages {
		return errQueueFull
	}
	return nil
}

var errQueueFull = fmt.Errorf("too many messages wait for this peer: %w", stepvan.ErrWouldBlock)

func (s *Session) enqueue(o *Outbound) {
	s.lanes[o.Channel].push(o)
	s.filled |= 1 << o.Channel
	s.pending++
	if o.exposed {
		s.exposed++
	}
	if s.filled != 1<<o.Channel {
		s.company = companyPieces
	}
}

// pump sends what the van takes. mu is held.
func (s *Session) pump() {
	if s.held || s.state != stateOpen && s.state != stateClosing {
		return
	}
	for s.filled != 0 {
		c := s.nextLane()
		if c < 0 || !s.emit(s.lanes[c].head) {
			break
		}
		if l := &s.lanes[c]; l.head.framed {
			if o := l.pop(); o.exposed {
				s.exposed--
			}
			if l.head == nil {
				s.filled &^= 1 << c
			}
			s.pending--
		}
	}
	if s.state == stateClosing && s.pending == 0 && !s.parting && s.opened {
		if s.parting = s.sendOwn(wire.KindGoodbye, 0, wire.AppendText(nil, s.goodbye)) == nil; s.parting {
			s.node.partAfter(s, stepvan.ErrClosed)
		}
	}
	s.noteBacklog()
}

// nextLane chooses the channel whose piece goes next: control first, the others in turn. -1: none may go.
func (s *Session) nextLane() int {
	if s.filled&1 != 0 {
		return 0
	}
	starved := false
	for turned := bits.RotateLeft16(s.filled, -s.turn); turned != 0; turned &= turned - 1 {
		c := (s.turn + bits.TrailingZeros16(turned)) % Channels
		o := s.lanes[c].head
		if s.tooDeep(o) {
			continue
		}
		if s.affordable(o) {
			s.turn = c + 1
			return c
		}
		starved = true
	}
	if starved {
		s.begForCredit()
	}
	return -1
}

// tooDeep reports whether o is bulk and the van holds enough of that.
func (s *Session) tooDeep(o *Outbound) bool {
	piece := uint64(s.node.pieceBytes)
	return s.inVan >= piecesInVan*piece && o.total-o.sent > piece/4
}

// affordable reports whether o has begun already, or fits the peer's credit.
func (s *Session) affordable(o *Outbound) bool {
	if o.sent > 0 || o.total == 0 || !credited(o.Channel) {
		return true
	}
	return s.used-s.freed+charge(o.total, s.window) <= s.window
}

// charge is what a message of n bytes takes of a window: all of n, but never more than
// half the window, so that one of any size may go, and others beside it.
func charge(n, window uint64) uint64 { return min(n, window/2) }

// begForCredit asks the peer to report each release at once, since this side waits for it.
func (s *Session) begForCredit() {
	if !s.hungry {
		s.hungry, s.starved = s.sendOwn(wire.KindAck, wire.FlagAckNow, nil) == nil, false
	}
}

// piecesInVan bounds the payload that is handed to the van ahead of its completion, in
// pieces: what the van holds can no longer be overtaken by another channel.
const piecesInVan = 2

// emit sends the next piece of o. false: the van has no room, or is gone.
func (s *Session) emit(o *Outbound) bool {
	f := s.newFrame()
	segment, inside := o.segment, o.inside
	n := o.cut(f, min(s.pieceOf(o), s.caps.MaxPayload), s.caps.MaxSegments)
	h := wire.Header{
		Kind: wire.KindData, Op: o.Op, Flags: o.Flags, Channel: o.Channel, Sequence: s.seq + 1,
		Request: o.Request, Generation: o.Generation, Pushes: o.Pushes, Pulls: o.Pulls,
		Payload: n, Total: o.total, Offset: o.sent,
	}
	meta := o.Meta
	if o.sent > 0 {
		meta = nil
	}
	s.msg.Spare = nil
	if o.exposed && n > 0 {
		s.msg.Spare = o.Spare[o.sent : o.sent+n : o.sent+n]
	}
	done, err := s.post(f, &h, meta)
	s.msg.Spare = nil
	if err != nil {
		o.segment, o.inside = segment, inside
		return s.rejected(o, err)
	}
	s.seq++
	f.seq, f.out, f.size, f.sent = s.seq, o, n, done
	if !done {
		s.inVan += n
		o.inflight++
	}
	if o.sent == 0 && credited(o.Channel) {
		s.used += charge(o.total, s.window)
	}
	o.sent += n
	if o.total > 0 {
		s.hungry = false // the peer forgets the request when payload comes
	}
	s.unacked.push(f)
	if o.sent == o.total {
		f.last, o.framed = true, true
		if o.Timed {
			o.posted = now()
		}
	}
	return true
}

// rejected reports whether o may be offered again at once. mu is held.
func (s *Session) rejected(o *Outbound, err error) bool {
	if !errors.Is(err, stepvan.ErrStale) {
		return false
	}
	if o.sent == 0 && !o.untarget {
		o.untarget = true
		return true
	}
	// What went so far is where the peer no longer looks.
	s.node.end(s, fmt.Errorf("a grant was withdrawn while a message was being written: %w", err))
	return false
}

const (
	// wholePieces is how many pieces go as one when nothing else waits: cutting
	// costs a header and a wake-up each, and serves nobody then.
	wholePieces = 4
	// companyPieces is how many pieces of a longer message are cut after a message of another
	// channel had to pass it: there may be more of those.
	companyPieces = 64
)

// pieceOf is the most that the next piece of o may have. mu is held.
func (s *Session) pieceOf(o *Outbound) int64 {
	piece := s.node.pieceBytes
	switch {
	case o.exposed && s.caps.OneSided:
		return max(1, piece/2) // the peer copies one out of Spare while the next is copied there
	case s.filled&^(1<<o.Channel) != 0:
		return piece
	case o.total <= wholePieces*uint64(piece):
		return wholePieces * piece
	case s.company > 0:
		s.company--
		return piece
	case s.caps.OneSided:
		return piece // each is copied within the call
	}
	return wholePieces * piece
}

// sendOwn sends a message of the link itself. mu is held.
func (s *Session) sendOwn(k wire.Kind, flags wire.Flags, meta []byte) error {
	f := s.newFrame()
	h := wire.Header{Kind: k, Flags: flags}
	done, err := s.post(f, &h, meta)
	if done {
		s.dropFrame(f)
	}
	return err
}

// post encodes f and offers it to the van; done says that the van has no use for f any more. On error f is
// recycled. mu is held.
func (s *Session) post(f *frame, h *wire.Header, meta []byte) (done bool, err error) {
	s.encode(f, h, meta)
	s.msg.Done, s.msg.More = false, h.Offset+h.Payload < h.Total
	s.msg.Op, s.msg.Head, s.msg.Payload, s.msg.Target = opOf(f), f.head, f.segs, f.targets
	if err := s.ep.Send(&s.msg); err != nil {
		s.dropFrame(f)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			s.node.engine.SetStuck() // the loss is on its way
		}
		return false, err
	}
	s.toldAck, s.toldCredit = h.Ack, h.Credit
	return s.msg.Done, nil
}

// noteBacklog keeps the node's count of sessions whose output is stuck. mu is held.
func (s *Session) noteBacklog() {
	stuck := s.pending > 0 || s.state == stateClosing && !s.parting
	if stuck == s.backlog {
		return
	}
	s.backlog = stuck
	if stuck {
		s.node.backlogs.Add(1)
		s.node.engine.SetStuck()
	} else if s.node.backlogs.Add(-1) == 0 {
		s.node.engine.ClearStuck()
	}
}
