package worker

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// isInMessage reports whether the bytes of an answer are in m. The server has written the others into the pull tensor,
// before it sent m (wire.DescInPlace) or as payload of m.
func isInMessage(m *link.Inbound, d *wire.Descriptor) bool {
	return d.Flags&wire.DescInPlace == 0 && (m.Written == 0 || d.Region == 0)
}

// checkResponse compares the answers of m with the pulls. Servers check them before they send, so
// answers that do not fit come from a broken server.
func (r *request) checkResponse(got []wire.Descriptor, m *link.Inbound) error {
	if len(got) != len(r.pulls) {
		return &stepvan.ProtocolError{Field: "pulls", Reason: fmt.Sprintf("an answer has the wrong number of tensors (got %d, want %d)", len(got), len(r.pulls))}
	}
	var written uint64
	for j := range got {
		d := &got[j]
		if err := r.checkAnswer(j, d); err != nil {
			return err
		}
		if d.Flags&wire.DescInPlace == 0 && !isInMessage(m, d) {
			written += d.Bytes
		}
	}
	if written != m.Written {
		return &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the server wrote %d bytes, and the answers name memory for %d", m.Written, written)}
	}
	return nil
}

// checkAnswer compares an answer with pull j. The memory that it names must be what r has lent for this pull.
func (r *request) checkAnswer(j int, d *wire.Descriptor) error {
	x, i := r.exchange, r.pulls[j]
	size := uint64(x.pull[i].Len())
	variable := len(x.variable) > 0 && x.variable[i]
	switch {
	case d.Key != x.pullKeys[i] || d.Bytes > size || d.Bytes < size && !variable:
		return &stepvan.ProtocolError{Field: "pull", Reason: fmt.Sprintf("an answer does not fit its pull (got key %d and %d bytes, want key %d and %d bytes)", d.Key, d.Bytes, x.pullKeys[i], size)}
	case d.Flags&wire.DescInPlace != 0 && d.Bytes > 0 && !r.lendsPull(j):
		return &stepvan.ProtocolError{Field: "flags", Reason: fmt.Sprintf("the answer to the pull of key %d is in memory that was not lent", x.pullKeys[i])}
	case d.Region != 0 && !(r.lendsPull(j) && r.plan.pulls[j] == link.TargetOf(d)):
		return &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the answer to the pull of key %d names memory that was not lent for it", x.pullKeys[i])}
	}
	return nil
}

// lendsPull reports whether the server may write pull j where it is.
func (r *request) lendsPull(j int) bool {
	p := r.plan.pulls
	return r.state&lentOut != 0 && len(p) > 0 && p[j].Grant != 0
}

// copyResponse copies the answers in m, which fit, to the pull tensors.
func (r *request) copyResponse(got []wire.Descriptor, m *link.Inbound) {
	payload := m.Payload
	for j, i := range r.pulls {
		if d := &got[j]; isInMessage(m, d) {
			copy(r.exchange.pull[i].Bytes(), payload[:d.Bytes])
			payload = payload[d.Bytes:]
		}
	}
}
