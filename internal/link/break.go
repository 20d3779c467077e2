package link

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Break ends the transport because of cause, when its state is unknown: after a panic. Waits return cause, and sessions
// are lost with it. Nobody gets a goodbye: to its peers the instance is dead. Break logs further panics on the way, and
// they change nothing. It returns when vans and sessions are closed. It never returns when the panic has left one of
// their locks held. Any goroutine.
func (t *Transport) Break(cause error) {
	t.broken.CompareAndSwap(nil, &cause)
	t.engine.Fail(cause)
	_ = t.Close()
}

// ignorePanics calls f, which may panic when the transport is broken: what has panicked once may do so again.
func (t *Transport) ignorePanics(f func()) {
	defer func() {
		if t.broken.Load() == nil {
			return
		}
		if value := recover(); value != nil {
			t.Log().Debug().Msgf("panic while the broken transport was closed: %v", value)
		}
	}()
	f()
}

var errReceiverFailed = &stepvan.ProtocolError{Field: "payload", Reason: "the receiver has failed"}

// Place defers recoverPlacement. A panic would otherwise leave the van, which has called Place, in the middle of its
// Poll. The driver finds the engine failed after that.
func (x *placer) recoverPlacement(err *error) {
	value := recover()
	if value == nil {
		return
	}
	if !x.engine.ReportPanic(value) {
		panic(value)
	}
	*err = errReceiverFailed
}

// Position says what the driver is doing, and with which peer ("": none), for the report of a panic. Driver only.
func (t *Transport) Position() (op, peer string) {
	e := t.vans.current
	if e == nil || e.Endpoint == nil {
		return "poll", ""
	}
	peer = e.Endpoint.Peer()
	if s, ok := e.Endpoint.User().(*Session); ok {
		peer = s.String()
	}
	switch e.Kind {
	case van.EventAccepted:
		return "accept a connection", peer
	case van.EventMessage:
		return "receive " + describe(&e.Delivery.Header), peer
	case van.EventCompletion:
		return "complete a send", peer
	case van.EventLost:
		return "end a connection that was lost", peer
	}
	return "detach a connection", peer
}

// describe names a message for people.
func describe(h *wire.Header) string {
	if h.Kind != wire.KindData {
		return fmt.Sprintf("a message of kind %v", h.Kind)
	}
	names := [...]string{
		ChannelControl: "a control message", ChannelRegister: "a message about registrations", ChannelRequest: "a request",
		ChannelResponse: "a small response", ChannelBulk: "a large response",
	}
	if int(h.Channel) < len(names) {
		return fmt.Sprintf("%s (number %d)", names[h.Channel], h.Request)
	}
	return fmt.Sprintf("a message on channel %d", h.Channel)
}

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

// rehearsing is a Handler that panics when its time has come.
type rehearsing struct {
	Handler
	r *rehearsal
}

// Receive implements Handler.
func (h rehearsing) Receive(m *Inbound) (kept bool) {
	h.r.countArrival()
	return h.Handler.Receive(m)
}

// Detached implements Detacher.
func (h rehearsing) Detached(s *Session) {
	if d, ok := h.Handler.(Detacher); ok {
		d.Detached(s)
	}
}
