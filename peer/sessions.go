package peer

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/files"
)

// sessionHandler is what both channels do alike, and receives the small messages. The driver makes all calls.
type sessionHandler struct {
	link.BaseHandler
	p *Peer
}

// Opened takes the session with another peer. There is one for each pair: a peer that has one refuses another, and of
// two peers that dial each other the lower rank refuses.
func (h sessionHandler) Opened(s *link.Session) error {
	p := h.p
	p.mu.Lock()
	defer p.unlock()
	r := p.ids[s.Peer().ID]
	switch {
	case r == nil && s.Dialled() != "":
		return nil // the scheduler
	case r == nil:
		return errs.Invalid("%s is not a peer of this cluster, or this one has not joined yet", s.Peer().Name)
	case r.dead != nil:
		return r.failure("connect", r.dead)
	case r.session != nil:
		return fmt.Errorf("%w: %s has one with this peer", link.ErrNeedless, r.Name)
	case r.dial.asking && s.Dialled() == "" && p.rank < r.Rank:
		return fmt.Errorf("%w: this peer dials %s", link.ErrNeedless, r.Name)
	}
	r.session, r.broke, r.dial.met, p.dials.opened = s, nil, true, time.Now()
	r.grants = files.New(s, &p.memory.Memory)
	r.notify()
	r.mail.opened()
	r.flush()
	return nil
}

// Lost implements link.Handler.
func (h sessionHandler) Lost(s *link.Session, err error) {
	p := h.p
	p.mu.Lock()
	defer p.unlock()
	if r := p.ids[s.Peer().ID]; r != nil && r.session == s {
		cause := r.failure("connection", err)
		r.session, r.grants, r.dial.lost, r.broke = nil, nil, true, cause
		if r.left == nil && !errors.Is(err, link.ErrLeft) { // else nothing is missing
			r.losses++
		}
		r.fail(cause)
		r.notify()
		if r.left != nil {
			p.lost(r.ID, r.left)
		}
	}
}

// Detached implements link.Detacher: the peer reaches nothing any more that it was granted on s.
func (h sessionHandler) Detached(s *link.Session) {
	p := h.p
	p.mu.Lock()
	defer p.unlock()
	p.edges.detached(s)
	p.windows.detached(s)
}

// Receive implements link.Handler.
func (h sessionHandler) Receive(m *link.Inbound) (kept bool) {
	if err := h.receive(m); err != nil {
		h.breakOff(m.Session, err)
	}
	return false
}

// breakOff ends the session with a peer that breaks the protocol.
func (h sessionHandler) breakOff(s *link.Session, err error) {
	h.Lost(s, fmt.Errorf("%w: %w", stepvan.ErrPeerLost, err))
	s.BreakOff(err.Error())
}

// receive handles a small message.
func (h sessionHandler) receive(m *link.Inbound) error {
	p := h.p
	p.mu.Lock()
	defer p.unlock()
	r := p.ids[m.Session.Peer().ID]
	if r == nil || r.session != m.Session {
		return nil // of a session that is over for this side
	}
	if m.Refused != nil {
		return m.Refused
	}
	switch op(m.Header.Op) {
	case opTell:
		return r.stock.small(m)
	case opNote:
		return p.windows.noted(r, m)
	case opMail:
		return r.mail.came(m)
	case opLetter:
		return r.letters.letter(m)
	}
	return h.receiveNote(r, m)
}

// receiveNote handles a message without payload.
func (h sessionHandler) receiveNote(r *remote, m *link.Inbound) error {
	switch op(m.Header.Op) {
	case opTaken:
		return r.stock.wereTaken(m)
	case opOffer:
		return r.stock.offered(m)
	case opAccept:
		return h.p.edges.accepted(r, m)
	case opRefuse:
		return h.p.edges.refused(r, m)
	case opWritten, opDone, opFail, opQuiet:
		return h.p.edges.noted(r, m)
	case opOpen, opReady:
		return h.p.edges.ran(r, m)
	case opPull:
		return h.p.edges.pulled(r, m)
	case opRead:
		return r.mail.wasRead(m)
	}
	return h.receiveOfWindow(r, m)
}

// receiveOfWindow handles a message about a window.
func (h sessionHandler) receiveOfWindow(r *remote, m *link.Inbound) error {
	t := &h.p.windows
	switch op(m.Header.Op) {
	case opAttach:
		return t.attach(r, m)
	case opAttached, opDetach:
		return t.answered(r, m)
	case opRevoke:
		return t.revoked(r, m)
	case opReleased:
		return t.released(r, m)
	case opGet, opPut:
		return t.serve(r, m, op(m.Header.Op) == opPut)
	case opServe:
		return t.served(r, m)
	}
	return errs.Protocol("op", 7, "unknown message %d between peers", m.Header.Op)
}

// bulkHandler receives the messages with large payloads. The driver makes all calls.
type bulkHandler struct{ p *Peer }

// Opened implements link.Handler.
func (bulkHandler) Opened(*link.Session) error { return nil }

// Lost implements link.Handler.
func (bulkHandler) Lost(*link.Session, error) {}

// Place implements link.Handler: a chunk goes straight to where it belongs, if that takes few pieces of memory.
func (h bulkHandler) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	p := h.p
	switch op(m.Header.Op) {
	case opChunk:
		p.mu.Lock()
		defer p.unlock()
		return p.edges.placeChunk(p, m, dst)
	case opPiece:
		p.mu.Lock()
		defer p.unlock()
		return p.edges.placePiece(p, m, dst)
	}
	return dst, nil
}

// Receive implements link.Handler.
func (h bulkHandler) Receive(m *link.Inbound) (kept bool) {
	var err error
	switch op(m.Header.Op) {
	case opChunk:
		err = h.receiveChunk(m)
	case opPiece:
		err = h.receivePiece(m)
	default:
		return sessionHandler{p: h.p}.Receive(m)
	}
	if err != nil {
		sessionHandler{p: h.p}.breakOff(m.Session, err)
	}
	return false
}

// Abort implements link.Handler.
func (h bulkHandler) Abort(m *link.Inbound, _ error) {
	var e *edge
	switch x := m.User.(type) {
	case *edge:
		e = x
	case *pull:
		e = x.edge
	default:
		return
	}
	h.p.mu.Lock()
	defer h.p.unlock()
	e.unplaced()
}

// fileDropped ends the grants of a memory file that goes back to the system. Under mu.
func (p *Peer) fileDropped(file uint64) {
	files.Withdraw(func(yield func(*files.Grants) bool) {
		for _, r := range p.remotes {
			if r.grants != nil && !yield(r.grants) {
				return
			}
		}
	}, file, func() {})
}
