package link

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// Break ends the node because of cause, where its state is not to be relied on: after a panic. Waits return cause, and
// sessions are lost with it. Nobody is told goodbye: to its peers the node is dead. Further panics on the way are logged and change nothing.
// It returns when vans and sessions are closed, and never where the panic has left one of their locks behind. Any goroutine.
func (n *Transport) Break(cause error) {
	n.broken.CompareAndSwap(nil, &cause)
	n.engine.Fail(cause)
	_ = n.Close()
}

// lastCause is why a session is lost that was open to the end.
func (n *Transport) lastCause(s *Session) error {
	if cause := n.broken.Load(); cause != nil {
		return *cause
	}
	return s.lossError(stepvan.ErrClosed)
}

// tolerate calls f, which may panic where the node is broken: what panicked once may do so again.
func (n *Transport) tolerate(f func()) {
	defer func() {
		if n.broken.Load() == nil {
			return
		}
		if value := recover(); value != nil {
			n.log.Debug().Msgf("panic while the broken node was closed: %v", value)
		}
	}()
	f()
}

var errMisplaced = &stepvan.ProtocolError{Field: "payload", Reason: "the receiver has failed"}

// misplaced is deferred by Place: the van, which has called it, must not be left in the middle of Poll. Who drives finds the
// engine failed after that.
func (n *Transport) misplaced(err *error) {
	value := recover()
	if value == nil {
		return
	}
	if !n.engine.ReportPanic(value) {
		panic(value)
	}
	*err = errMisplaced
}

// Position says what the driver is doing, and which peer that concerns ("" for none): for the report of a panic. Only the goroutine that drives may call it.
func (n *Transport) Position() (op, peer string) {
	e := n.at
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
	return "let go of a connection", peer
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

// Rehearsal has the driver panic on purpose, to try what that does to a program.
type Rehearsal struct {
	After  int  // at the After-th request or response that arrives; 0: not at all
	Locked bool // with a lock of the node held, which is never given back
}

// rehearsal is that of one node. Driver only.
type rehearsal struct {
	node   *Transport
	left   int
	locked bool
}

func (r *rehearsal) arrived() {
	if r.left--; r.left != 0 {
		return
	}
	if r.locked {
		r.node.mu.Lock()
	}
	panic(errors.New("STEPVAN_PANIC_AFTER: a panic on purpose"))
}

// wrap makes h panic when its time has come. It stays a Receiver if it is one.
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
	h.r.arrived()
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
	h.r.arrived()
	return h.take.Receive(m, meta, payload)
}
