package faults

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// endpoint stands between an endpoint of the inner van and its owner.
type endpoint struct {
	van.Endpoint // the inner one
	van          *faultyVan
	public       van.Endpoint // the endpoint itself, or the granter or viewer around it
	corrupt      atomic.Bool  // the next message is damaged

	// guarded by van.net.mu
	to      string // the name of the van that was dialled, "" when none was
	pending int    // operations accepted that are not complete
	held    int    // messages held back
	lastDue time.Time
	end     error // of calls after the end of the connection; nil before
	severed bool  // lost by a fault of this side, which is still to be reported
}

// Send implements van.Endpoint.
func (e *endpoint) Send(m *van.Message) error {
	held, err := e.hold(m)
	if err == nil && !held {
		err = e.begin(func() error { return e.pass(m) }, &m.Done)
	}
	if err == nil && e.unlucky() {
		e.sever()
	}
	return err
}

// begin calls the inner endpoint for an operation, which has no event when done is set afterwards.
func (e *endpoint) begin(call func() error, done *bool) error {
	mu := &e.van.net.mu
	mu.Lock()
	e.pending++
	mu.Unlock()
	err := call()
	if err == nil && !*done {
		return nil
	}
	mu.Lock()
	defer mu.Unlock()
	e.pending--
	if e.end != nil {
		e.van.wake() // a loss may have waited for this
	}
	return e.translate(err)
}

// pass gives m to the inner van.
func (e *endpoint) pass(m *van.Message) error {
	if !e.corrupt.CompareAndSwap(true, false) {
		return e.Endpoint.Send(m)
	}
	head := m.Head
	m.Head = slices.Clone(head)
	m.Head[len(head)-1] ^= 0x80
	err := e.Endpoint.Send(m)
	m.Head = head
	e.corrupt.Store(err != nil)
	return err
}

// unlucky reports whether a message that was accepted costs the connection.
func (e *endpoint) unlucky() bool {
	v := e.van
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	return v.net.options.LossRate > 0 && v.dice.Float64() < v.net.options.LossRate
}

// sever loses the connection. The poller reports the loss when all operations are complete.
func (e *endpoint) sever() {
	v := e.van
	v.net.mu.Lock()
	over := e.end != nil
	if !over {
		e.end, e.severed = stepvan.ErrPeerLost, true
		v.cut = append(v.cut, e)
	}
	v.net.mu.Unlock()
	if !over {
		_ = e.Endpoint.Close()
		v.wake()
	}
}

// Close implements van.Endpoint.
func (e *endpoint) Close() error {
	v := e.van
	v.net.mu.Lock()
	e.end, e.severed = stepvan.ErrClosed, false
	held := e.held > 0
	v.net.mu.Unlock()
	err := e.Endpoint.Close()
	if held {
		v.wake() // it completes with the next Poll
	}
	return err
}

// Settle implements van.Settler.
func (e *endpoint) Settle() {
	if s, ok := e.Endpoint.(van.Settler); ok {
		s.Settle()
	}
}

// reportFirst adds to found what comes before an event of the inner endpoint, which it edits.
func (e *endpoint) reportFirst(ev *van.Event, found []van.Event) []van.Event {
	v := e.van
	v.net.mu.Lock()
	defer v.net.mu.Unlock()
	switch ev.Kind {
	case van.EventCompletion:
		*ev = e.completion(ev.Op, ev.Err)
	case van.EventLost, van.EventDetached:
		if e.end == nil {
			e.end = stepvan.ErrPeerLost
		}
		v.sendHeld()
		found = append(found, v.ready...)
		v.ready = nil
		if e.severed && ev.Kind == van.EventDetached {
			found = append(found, e.loss())
		}
		e.severed = false
	}
	return found
}

// completion is the event of an operation that is complete. Called with van.net.mu held.
func (e *endpoint) completion(op van.OpID, err error) van.Event {
	e.pending--
	return van.Event{Kind: van.EventCompletion, Endpoint: e.public, Op: op, Err: e.translate(err)}
}

// loss is the event of the loss of a severed connection. Called with van.net.mu held.
func (e *endpoint) loss() van.Event {
	e.severed = false
	return van.Event{Kind: van.EventLost, Endpoint: e.public, Err: e.van.fault("receive", e.Peer(), stepvan.ErrPeerLost)}
}

// translate says that the peer is lost when the inner endpoint says that it is closed, and its owner did not close it.
// Called with van.net.mu held.
func (e *endpoint) translate(err error) error {
	if errors.Is(err, stepvan.ErrClosed) && errors.Is(e.end, stepvan.ErrPeerLost) {
		return e.van.fault("send", e.Peer(), stepvan.ErrPeerLost)
	}
	return err
}
