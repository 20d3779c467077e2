package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// reply is one Respond or RespondVec under way, on its caller's goroutine.
type reply struct {
	next      *reply // in the list of free ones
	requests  []*incoming
	letters   []*letter // one per request
	sessions  []*link.Session
	outbounds []*link.Outbound
	skipped   []skipped
	held      []*link.Inbound // of the answered requests, to release
	copies    bool            // the tensors are the caller's again at the end of the call
	sources   []tensor.Tensor // that have memory to spare, held until the end of the call
	parked    []*remote       // whose outboxes have letters of this reply
}

// skipped is a letter whose worker is gone.
type skipped struct {
	letter *letter
	why    error
}

// begin starts a reply. Under s.mu, until end.
func (s *Server) begin() *reply {
	y := s.freeReplies
	if y == nil {
		return new(reply)
	}
	s.freeReplies, y.next = y.next, nil
	return y
}

// add claims the request with handler h for y. Under s.mu.
func (s *Server) add(y *reply, h RequestID) error {
	in := s.find(h)
	if in == nil {
		return fmt.Errorf("respond: handler %#x names no unanswered request: it was answered before, or never given: %w", uint64(h), stepvan.ErrStale)
	}
	if in.stage == answering {
		return fmt.Errorf("respond: handler %#x is being answered already: %w", uint64(h), stepvan.ErrStale)
	}
	if s.closed {
		if m := s.recycle(in); m != nil {
			y.held = append(y.held, m)
		}
		return errClosed("respond")
	}
	in.stage = answering
	y.requests = append(y.requests, in)
	y.letters = append(y.letters, s.newLetter(in.from))
	return nil
}

// end sends the reply, or undoes everything when err says that it cannot be. It gives up s.mu.
func (s *Server) end(y *reply, at int64, err error) (Response, error) {
	defer s.mu.Unlock()
	if err != nil {
		s.undo(y)
		return Response{}, err
	}
	rec := s.responses.Open()
	rec.Value = response{pending: len(y.letters) + 1} // one for this call
	for i, l := range y.letters {
		l.rec = rec
		s.sum(l, y.requests[i])
		s.encode(l, y.requests[i], at)
	}
	r := Response{s: s, id: rec.ID()}
	if err := s.send(y); err != nil {
		s.responses.Drop(rec)
		s.undo(y)
		return Response{}, err
	}
	// From here on the letters are the link's.
	for _, k := range y.skipped {
		if k.letter.missed(k.why) {
			rec.Value.fail(k.letter.to.failure("respond", k.why))
		}
		s.freeLetter(k.letter)
		s.settle(rec)
	}
	s.finish(y)
	s.settle(rec)
	s.giveBack(y)
	return r, nil
}

// encode makes the message of one answer.
func (s *Server) encode(l *letter, in *incoming, at int64) {
	var total, sent int64
	meta := l.meta[:0]
	for i := range l.answers {
		t := &l.answers[i].tensor
		var d wire.Descriptor
		d.Key, d.Bytes, d.DType = in.pulls[i].Key, uint64(t.Len()), t.DType()
		total += int64(t.Len())
		if l.answers[i].there {
			d.Flags |= wire.DescInPlace
		} else {
			sent += int64(t.Len())
			l.payload = append(l.payload, t.Bytes())
		}
		meta = d.AppendShaped(meta, t.Dims())
	}
	var flags wire.Flags
	l.stamps = [4]int64{}
	l.id, l.key, l.bytesOut, l.bytesBack = in.id, in.firstKey(), in.bytes, total
	if in.traced {
		flags = wire.FlagTrace
		l.stamps = [4]int64{in.received, in.processed, at, trace.Now()}
		meta = wire.AppendStamps(meta, l.stamps)
	}
	l.meta = meta
	channel := link.ChannelResponse
	if sent > s.node.PieceBytes() {
		channel = link.ChannelBulk
	}
	o := &l.out // one assignment of the whole is 40 instructions more
	o.Channel, o.Op, o.Flags, o.Request, o.Generation = channel, wire.OpResponse, flags, in.id, 0
	o.Pushes, o.Pulls, o.Meta, o.Payload, o.Targets = 0, uint32(len(l.answers)), meta, l.payload, nil
	o.Spare, o.Completer, o.User = nil, s, l
	if l.spare != nil {
		o.Spare = l.spare.Bytes()
	}
}

// send offers the letters to the link, which takes all or none. Workers that are
// gone are left out: their letters have failed. Under s.mu.
func (s *Server) send(y *reply) error {
	early := false
	for i, l := range y.letters {
		y.sessions = append(y.sessions, y.requests[i].session)
		y.outbounds = append(y.outbounds, &l.out)
		early = early || y.requests[i].early
	}
	if early && y.sort() && len(y.sessions) == 0 {
		return nil
	}
	for {
		err := s.offer(y)
		if y.canPark(err) {
			s.park(y)
			return nil
		}
		if err == nil || !y.sort() {
			return err
		}
		if len(y.sessions) == 0 {
			return nil
		}
	}
}

// offer gives the letters to the link. Under s.mu, which is free meanwhile when that may take long.
func (s *Server) offer(y *reply) error {
	if len(y.letters) > 1 || y.letters[0].bytesBack > link.LockedBytes {
		s.mu.Unlock()
		defer s.mu.Lock()
	}
	return s.node.SendAll(y.sessions, y.outbounds)
}

// sort tells the letters that can be sent from those whose worker is gone. It reports
// whether some of those that were offered are among these.
func (y *reply) sort() bool {
	offered := len(y.sessions)
	y.sessions, y.outbounds, y.skipped = y.sessions[:0], y.outbounds[:0], y.skipped[:0]
	for i, l := range y.letters {
		in := y.requests[i]
		if err := in.unreachable(); err != nil {
			y.skipped = append(y.skipped, skipped{l, err})
			continue
		}
		y.sessions = append(y.sessions, in.session)
		y.outbounds = append(y.outbounds, &l.out)
	}
	return len(y.sessions) < offered
}

// finish ends the requests that have been answered. Under s.mu.
func (s *Server) finish(y *reply) {
	for _, in := range y.requests {
		if m := s.recycle(in); m != nil {
			y.held = append(y.held, m)
		}
	}
}

// undo leaves the requests unanswered. Under s.mu.
func (s *Server) undo(y *reply) {
	for i, l := range y.letters {
		y.requests[i].stage = handed
		s.freeLetter(l)
	}
	s.giveBack(y)
}

// giveBack recycles a reply. Under s.mu, which is free while memory of the link's is released, and outboxes are offered.
func (s *Server) giveBack(y *reply) {
	for i := range y.sources {
		y.sources[i].Release()
	}
	if len(y.held) > 0 || len(y.parked) > 0 {
		s.mu.Unlock()
		for _, m := range y.held {
			m.Release()
		}
		for _, to := range y.parked {
			s.pump(to)
		}
		s.mu.Lock()
	}
	y.sessions, y.skipped, y.held = reuse.Slice(y.sessions), reuse.Slice(y.skipped), reuse.Slice(y.held)
	y.copies, y.sources, y.parked = false, reuse.Slice(y.sources), reuse.Slice(y.parked)
	y.requests, y.letters, y.outbounds = y.requests[:0], y.letters[:0], y.outbounds[:0] // which the server keeps anyway
	y.next, s.freeReplies = s.freeReplies, y
}
