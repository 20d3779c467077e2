package server

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// tell answers a request with an error.
func (s *Server) tell(to *remote, id uint64, err error) {
	s.mu.Lock()
	s.queueError(to, id, err)
	s.mu.Unlock()
	s.pump(to)
}

// queueError puts an answer with an error into the outbox, for pump to send. Under s.mu.
func (s *Server) queueError(to *remote, id uint64, err error) {
	if to.session == nil {
		return
	}
	l := s.newLetter(to)
	l.meta = wire.AppendText(l.meta, err.Error())
	l.out = link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError,
		Request: id, Meta: l.meta, Completer: s, User: l,
	}
	to.outbox = append(to.outbox, l)
}

// pump offers the outbox to the link, in order. What does not fit stays, and is
// offered again with the next message of or to that worker.
func (s *Server) pump(r *remote) {
	for {
		s.mu.Lock()
		i := s.sendable(r)
		if i < 0 {
			s.mu.Unlock()
			return
		}
		l, session := r.outbox[i], r.session
		r.outbox = slices.Delete(r.outbox, i, i+1)
		r.posting = true
		s.mu.Unlock()
		err := session.Send(&l.out)
		if !s.posted(r, l, err) {
			return
		}
	}
}

// sendable returns which letter goes next, -1 for none: the first one, or while that is an announcement which has
// to wait, the first refusal behind it. Under s.mu.
func (s *Server) sendable(r *remote) int {
	if r.posting || len(r.outbox) == 0 || r.session == nil {
		return -1
	}
	if s.seal(r, r.outbox[0]) {
		return 0
	}
	return slices.IndexFunc(r.outbox, func(l *letter) bool { return l.out.Channel != link.ChannelRegister })
}

// seal completes a letter. It reports false when it cannot go yet. Under s.mu.
func (s *Server) seal(r *remote, l *letter) bool {
	if l.out.Channel != link.ChannelRegister {
		return true
	}
	if l.out.Op == wire.OpAnnounce && (s.reached(l.chunks) || !s.lend(r, l.chunks)) {
		return false
	}
	l.meta = l.meta[:0]
	for _, c := range l.chunks {
		d := c.describe()
		l.meta = d.Append(l.meta)
	}
	l.out.Meta = l.meta
	return true
}

// posted notes what the link said to a letter, which is the link's when err is nil. It reports whether to go on.
func (s *Server) posted(r *remote, l *letter, err error) bool {
	s.mu.Lock()
	r.posting = false
	full := errors.Is(err, stepvan.ErrWouldBlock)
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
