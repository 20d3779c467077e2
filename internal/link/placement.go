package link

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// maxControl bounds a message on a channel without credit, in bytes.
const maxControl = 64 << 20

// placer is the transport as its vans see it.
type placer Transport

// Place implements van.Placer.
func (x *placer) Place(ep van.Endpoint, h *wire.Header, meta []byte, dst [][]byte) (_ [][]byte, err error) {
	defer x.recoverPlacement(&err)
	s, _ := ep.User().(*Session)
	if s == nil || !s.opening.phase.open() || s.lost || h.Kind != wire.KindData {
		return nil, &stepvan.ProtocolError{Field: "payload", Reason: "payload outside of a message of an open session"}
	}
	return s.in.place(h, meta, dst)
}

// place appends to dst the destinations of a piece that the van is about to read.
func (x *receiver) place(h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
	if err := x.checkData(h); err != nil {
		return nil, err
	}
	q := &x.incoming[h.Channel]
	m := q.last()
	if h.Offset == 0 {
		if m != nil && m.placed < m.Header.Total {
			return nil, &stepvan.ProtocolError{Field: "offset", Reason: "a message begins inside another one"}
		}
		if err := x.takeCredit(h); err != nil {
			return nil, err
		}
		m = x.session.transport.inbounds.takePiece(x.session, h, meta)
		q.push(m, &m.link)
		if err := x.choosePlace(m); err != nil {
			return nil, err
		}
	} else if m == nil || m.placed != h.Offset || m.Header.Total != h.Total {
		return nil, &stepvan.ProtocolError{Field: "offset", Reason: "piece does not continue its message"}
	}
	if m.Refused != nil {
		m.placed += h.Payload
		return nil, m.Refused
	}
	return m.place(dst, h.Payload), nil
}

// choosePlace asks the handler for the memory of m, and takes pooled memory where the handler leaves that to the link.
func (x *receiver) choosePlace(m *Inbound) error {
	t := x.session.transport
	dst, err := t.handlers[m.Header.Channel].Place(m, m.dst)
	if err != nil && isProtocol(err) {
		return err
	}
	if err == nil && len(dst) == 0 {
		dst, err = t.inbounds.placePooled(m, dst)
	}
	if err != nil {
		m.Refused = err
		return nil
	}
	m.dst = dst
	var sum uint64
	for _, p := range dst {
		sum += uint64(len(p))
	}
	if sum != m.Header.Total {
		m.Refused = fmt.Errorf("placement of %d bytes for a message of %d", sum, m.Header.Total)
	}
	return nil
}

func isProtocol(err error) bool {
	var protocol *stepvan.ProtocolError
	return errors.As(err, &protocol)
}

// placePooled gives m pooled memory.
func (x *inboundPool) placePooled(m *Inbound, dst [][]byte) ([][]byte, error) {
	if !credited(m.Header.Channel) && m.Header.Total > maxControl {
		return dst, errs.Invalid("control message of %d bytes, limit %d", m.Header.Total, maxControl)
	}
	r, err := x.memory.Get(int(m.Header.Total))
	if err != nil {
		return dst, fmt.Errorf("no receive memory for %d bytes: %w", m.Header.Total, err)
	}
	m.region = r
	m.Payload = r.Bytes()[:m.Header.Total]
	return append(dst, m.Payload), nil
}
