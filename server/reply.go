package server

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/wire"
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
}

// skipped is a letter whose worker is gone.
type skipped struct {
	letter *letter
	why    error
}

// begin starts a reply. It ends with end, whatever happens.
func (s *Server) begin() *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.freeReplies
	if y == nil {
		return new(reply)
	}
	s.freeReplies, y.next = y.next, nil
	return y
}

// add claims the request with handler h for y.
func (s *Server) add(y *reply, h Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.find(h)
	if in == nil {
		return fmt.Errorf("respond: handler %#x names no unanswered request: it was answered before, or never given: %w", uint64(h), errs.ErrStale)
	}
	if in.stage == answering {
		return fmt.Errorf("respond: handler %#x is being answered already: %w", uint64(h), errs.ErrStale)
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

// end sends the reply, or undoes everything when err says that it cannot be.
func (s *Server) end(y *reply, at int64, err error) (Response, error) {
	if err != nil {
		s.undo(y)
		return Response{}, err
	}
	rec := s.responses.Open()
	rec.Value = response{pending: len(y.letters) + 1} // one for this call
	for i, l := range y.letters {
		l.rec = rec
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
		s.Done(&k.letter.out, k.why)
	}
	s.mu.Lock()
	s.finish(y)
	last := rec.Value.settle()
	s.mu.Unlock()
	s.giveBack(y)
	if last {
		s.responses.Finish(rec, rec.Value.err)
	}
	return r, nil
}

// encode makes the message of one answer.
func (s *Server) encode(l *letter, in *incoming, at int64) {
	var total, sent int64
	meta := l.meta[:0]
	for i := range l.answers {
		t := &l.answers[i].tensor
		d := wire.Descriptor{Key: in.pulls[i].Key, Bytes: uint64(t.Len()), DType: t.DType(), Shape: t.Shape()}
		total += int64(t.Len())
		if l.answers[i].there {
			d.Flags |= wire.DescInPlace
		} else {
			sent += int64(t.Len())
			l.payload = append(l.payload, t.Bytes())
		}
		meta = d.Append(meta)
	}
	var flags wire.Flags
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
	l.out = link.Outbound{
		Channel: channel, Op: wire.OpResponse, Flags: flags, Request: in.id,
		Pulls: uint32(len(l.answers)), Meta: meta, Payload: l.payload, Completer: s, User: l,
	}
}

// send offers the letters to the link, which takes all or none. Workers that are
// gone are left out: their letters have failed.
func (s *Server) send(y *reply) error {
	for {
		y.sort()
		if len(y.sessions) == 0 {
			return nil
		}
		err := s.node.SendAll(y.sessions, y.outbounds)
		if err == nil || !errors.Is(err, errs.ErrPeerLost) || !y.thinned() {
			return err
		}
	}
}

// sort tells the letters that can be sent from those whose worker is gone.
func (y *reply) sort() {
	y.sessions, y.outbounds, y.skipped = y.sessions[:0], y.outbounds[:0], y.skipped[:0]
	for i, l := range y.letters {
		session := y.requests[i].session
		if err := session.Err(); err != nil {
			y.skipped = append(y.skipped, skipped{l, err})
			continue
		}
		y.sessions = append(y.sessions, session)
		y.outbounds = append(y.outbounds, &l.out)
	}
}

// finish ends the requests that have been answered. Under s.mu.
func (s *Server) finish(y *reply) {
	for _, in := range y.requests {
		if m := s.recycle(in); m != nil {
			y.held = append(y.held, m)
		}
	}
}

// thinned reports whether a worker was lost since the letters were offered.
func (y *reply) thinned() bool {
	for _, session := range y.sessions {
		if session.Err() != nil {
			return true
		}
	}
	return false
}

// undo leaves the requests unanswered.
func (s *Server) undo(y *reply) {
	s.mu.Lock()
	for i, l := range y.letters {
		y.requests[i].stage = handed
		s.freeLetter(l)
	}
	s.mu.Unlock()
	s.giveBack(y)
}

// giveBack recycles a reply.
func (s *Server) giveBack(y *reply) {
	for _, m := range y.held {
		m.Release()
	}
	clear(y.requests)
	clear(y.letters)
	clear(y.sessions)
	clear(y.outbounds)
	clear(y.skipped)
	clear(y.held)
	y.requests, y.letters, y.held = y.requests[:0], y.letters[:0], y.held[:0]
	y.sessions, y.outbounds, y.skipped = y.sessions[:0], y.outbounds[:0], y.skipped[:0]
	s.mu.Lock()
	y.next, s.freeReplies = s.freeReplies, y
	s.mu.Unlock()
}
