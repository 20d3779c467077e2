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
	conns  sync.Map // *link.Session to *linkConn
}

func newControl(to service, accept bool, log zerolog.Logger) *control {
	return &control{to: to, accept: accept, log: log}
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
	h.conns.Store(s, c)
	return c
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
	if m.Header.Total > maxMessage {
		return dst, errs.Invalid("control message: its body is too long (got %d bytes, want at most %d)", m.Header.Total, maxMessage)
	}
	return dst, nil
}

// Receive implements link.Handler. It drops messages of sessions that do not lead to the scheduler.
func (h *control) Receive(m *link.Inbound) (kept bool) {
	c, _ := h.conns.Load(m.Session)
	f := frame{op: op(m.Header.Op), request: m.Header.Request, body: slices.Clone(m.Payload)}
	switch to, ok := c.(*linkConn); {
	case !ok:
		h.log.Debug().Uint8("op", uint8(f.op)).Msg("control message from a peer that is not the scheduler: dropped")
	case m.Refused != nil:
		h.log.Warn().Err(m.Refused).Msg("control message dropped")
	default:
		h.to.deliver(to, f)
	}
	return false
}

// Lost implements link.Handler. It reports the end of a session to the service, once.
func (h *control) Lost(s *link.Session, err error) {
	c, _ := h.conns.LoadAndDelete(s)
	if c, ok := c.(*linkConn); ok {
		h.to.lost(c, err)
	}
}
