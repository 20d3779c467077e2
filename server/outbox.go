package server

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/wire"
)

// tell answers a request with an error.
func (s *Server) tell(to *remote, id uint64, err error) {
	s.mu.Lock()
	if to.session == nil {
		s.mu.Unlock()
		return
	}
	l := s.newLetter(to)
	l.meta = wire.AppendText(l.meta, err.Error())
	l.out = link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError,
		Request: id, Meta: l.meta, Completer: s, User: l,
	}
	to.outbox = append(to.outbox, l)
	s.mu.Unlock()
	s.pump(to)
}

// pump offers the outbox to the link, in order. What does not fit stays, and is
// offered again with the next message of or to that worker.
func (s *Server) pump(r *remote) {
	for {
		s.mu.Lock()
		if r.posting || len(r.outbox) == 0 || r.session == nil {
			s.mu.Unlock()
			return
		}
		l, session := r.outbox[0], r.session
		r.outbox = slices.Delete(r.outbox, 0, 1)
		r.posting = true
		s.mu.Unlock()
		err := session.Send(&l.out)
		if !s.posted(r, l, err) {
			return
		}
	}
}

// posted notes what the link said to a letter, which is the link's when err is nil. It reports whether to go on.
func (s *Server) posted(r *remote, l *letter, err error) bool {
	s.mu.Lock()
	r.posting = false
	full := errors.Is(err, errs.ErrWouldBlock)
	if full && r.session != nil {
		r.outbox = slices.Insert(r.outbox, 0, l)
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	if err != nil {
		s.Done(&l.out, err)
	}
	return true
}
