package postoffice

import (
	"context"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
)

// control is the handler of link.ChannelControl: it turns messages into frames,
// and sessions into conns, for the service behind it.
type control struct {
	link.BaseHandler
	to     service
	accept bool // serve every session that opens, not only those that dial made
	log    zerolog.Logger

	mu    sync.Mutex
	conns map[*link.Session]*linkConn
}

func newControl(to service, accept bool, log zerolog.Logger) *control {
	return &control{to: to, accept: accept, log: log, conns: map[*link.Session]*linkConn{}}
}

// dial makes the session to the scheduler.
func (h *control) dial(ctx context.Context, node *link.Transport, addrs []string) (conn, error) {
	s, err := node.Dial(ctx, addrs)
	if err != nil {
		return nil, err
	}
	s.TellLossFirst() // other peers leave because of it
	return h.add(s), nil
}

func (h *control) add(s *link.Session) *linkConn {
	c := &linkConn{session: s, owner: h}
	h.mu.Lock()
	h.conns[s] = c
	h.mu.Unlock()
	return c
}

func (h *control) find(s *link.Session) *linkConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[s]
}

// Opened implements link.Handler.
func (h *control) Opened(s *link.Session) error {
	if h.accept {
		s.SetVisitor(true)
		h.to.opened(h.add(s))
	}
	return nil
}

// Place implements link.Handler.
func (h *control) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	if m.Header.Total > MaxMessage {
		return dst, errs.Invalid("control message of %d bytes, limit %d", m.Header.Total, MaxMessage)
	}
	return dst, nil
}

// Receive implements link.Handler. It drops messages of sessions that do not lead to the scheduler.
func (h *control) Receive(m *link.Inbound) (kept bool) {
	c := h.find(m.Session)
	f := frame{op: op(m.Header.Op), request: m.Header.Request, body: slices.Clone(m.Payload)}
	switch {
	case c == nil:
		h.log.Debug().Uint8("op", uint8(f.op)).Msg("control message from a peer that is not the scheduler: dropped")
	case m.Refused != nil:
		h.log.Warn().Err(m.Refused).Msg("control message dropped")
	default:
		h.to.deliver(c, f)
	}
	return false
}

// Lost implements link.Handler.
func (h *control) Lost(s *link.Session, err error) {
	if c := h.find(s); c != nil {
		h.lose(c, err)
	}
}

// lose reports the end of c to the service, once.
func (h *control) lose(c *linkConn, err error) {
	h.mu.Lock()
	_, known := h.conns[c.session]
	delete(h.conns, c.session)
	h.mu.Unlock()
	if known {
		h.to.lost(c, err)
	}
}
