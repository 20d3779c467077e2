package link

import "errors"

// Rehearsal makes the driver panic on purpose, to try what that does to a program.
type Rehearsal struct {
	After  int  // at the After-th request or response that arrives; 0: not at all
	Locked bool // with a lock of the transport held, which is never released
}

// rehearsal is the state of a Rehearsal. Driver only.
type rehearsal struct {
	transport *Transport
	left      int
	locked    bool
}

// countArrival panics when its time has come.
func (r *rehearsal) countArrival() {
	if r.left--; r.left != 0 {
		return
	}
	if r.locked {
		r.transport.sessions.mu.Lock()
	}
	panic(errors.New("STEPVAN_PANIC_AFTER: a panic on purpose"))
}

// wrap makes h panic when its time has come. A Receiver stays one.
func (r *rehearsal) wrap(h Handler) Handler {
	if take, ok := h.(Receiver); ok {
		return rehearsingReceiver{rehearsing{h, r}, take}
	}
	return rehearsing{h, r}
}

type rehearsing struct {
	Handler
	r *rehearsal
}

// Deliver implements Handler.
func (h rehearsing) Deliver(m *Inbound) {
	h.r.countArrival()
	h.Handler.Deliver(m)
}

// Detached implements Detacher.
func (h rehearsing) Detached(s *Session) {
	if d, ok := h.Handler.(Detacher); ok {
		d.Detached(s)
	}
}

type rehearsingReceiver struct {
	rehearsing
	take Receiver
}

// Receive implements Receiver.
func (h rehearsingReceiver) Receive(m *Inbound, meta, payload []byte) (kept bool) {
	h.r.countArrival()
	return h.take.Receive(m, meta, payload)
}
