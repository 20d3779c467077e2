package worker

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// registers handles the servers' announcements. Later requests say with their
// generation which of them this worker had seen, or are written where they say.
type registers struct{ w *Worker }

// Opened implements link.Handler.
func (r registers) Opened(s *link.Session) error {
	r.w.opened(s)
	return nil
}

// Place refuses payload, which announcements do not have.
func (r registers) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	return dst, new(wire.Announcement).Decode(&m.Header, m.Meta)
}

// Deliver takes what is registered, or is no longer.
func (r registers) Deliver(m *link.Inbound) {
	var a wire.Announcement
	session, op, g := m.Session, m.Header.Op, m.Header.Generation
	err := a.Decode(&m.Header, m.Meta)
	m.Release()
	if err != nil {
		r.w.breakOff(session, err)
		return
	}
	r.w.mu.Lock()
	v := r.w.sessions[session]
	if v == nil {
		r.w.mu.Unlock()
		return
	}
	if op == wire.OpAnnounce {
		v.announced(&a, g)
	} else {
		r.w.withdrawn(v, &a, g)
	}
	r.w.unlock()
}

// Abort implements link.Handler.
func (r registers) Abort(*link.Inbound, error) {}

// Detached implements link.Detacher.
func (r registers) Detached(s *link.Session) { r.w.detached(s) }

// Lost implements link.Handler.
func (r registers) Lost(s *link.Session, err error) { r.w.lose(s, err) }
