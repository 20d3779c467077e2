package worker

import "math/bits"

// requestState is what still happens to a request. It is a set: the sending of the message, the receiving of the
// response, and the lending of memory do not depend on each other. Only requestTransitions changes it.
type requestState uint8

const (
	unacknowledged requestState = 1 << iota // the server has not acknowledged the message, so the link may still read it
	unanswered                              // the server has neither answered nor been lost
	receiving                               // the beginning of a response has come, and refers to the request
	placing                                 // that response goes straight into the pull tensors
	lentOut                                 // the server may reach tensors where they are

	requestStates = iota
)

// requestEvent is what changes a requestState.
type requestEvent uint8

const (
	lendTensors  requestEvent = iota // the message will tell the server where tensors are
	offer                            // the link is about to get the message
	acknowledge                      // the server has the message, or the link has given it up
	beginPlace                       // a response begins, for the pull tensors
	beginDiscard                     // a response begins, for nobody
	endReceive                       // the response is whole, or will never be
	answer                           // the response counts: the server is done with the request
	loseServer                       // the server will not answer any more
	detachMemory                     // a lost server cannot reach memory of this worker any more

	requestEvents = iota
)

// requestTransitions tells when an event can happen, and what it changes. A loss ends the wait for an answer, but
// neither the response that is being received nor the reach of the server. So an answer may come after it.
var requestTransitions = [requestEvents]struct{ needs, refuses, sets, clears requestState }{
	lendTensors:  {refuses: unacknowledged | unanswered | receiving, sets: lentOut},
	offer:        {refuses: unacknowledged | unanswered | receiving, sets: unacknowledged | unanswered},
	acknowledge:  {needs: unacknowledged, clears: unacknowledged},
	beginPlace:   {needs: unanswered, refuses: receiving, sets: receiving | placing},
	beginDiscard: {needs: unanswered, refuses: receiving, sets: receiving},
	endReceive:   {needs: receiving, clears: receiving | placing},
	answer:       {refuses: receiving, clears: unanswered | lentOut},
	loseServer:   {needs: unanswered, clears: unanswered},
	detachMemory: {needs: lentOut, clears: lentOut},
}

// after returns the state after e, and whether e can happen in s at all.
func (s requestState) after(e requestEvent) (requestState, bool) {
	t := &requestTransitions[e]
	if s&t.needs != t.needs || s&t.refuses != 0 {
		return s, false
	}
	return s&^t.clears | t.sets, true
}

// requestCounts counts the requests of an exchange by what still happens to them.
type requestCounts struct {
	counts  [requestStates]int32
	pending requestState // what still happens to at least one request
}

func (c *requestCounts) change(from, to requestState) {
	for changed := from ^ to; changed != 0; changed &= changed - 1 {
		i := bits.TrailingZeros8(uint8(changed))
		bit := requestState(1) << i
		if to&bit != 0 {
			c.counts[i]++
			c.pending |= bit
		} else if c.counts[i]--; c.counts[i] == 0 {
			c.pending &^= bit
		}
	}
}

// count returns how many requests are in a state that has bit.
func (c *requestCounts) count(bit requestState) int {
	return int(c.counts[bits.TrailingZeros8(uint8(bit))])
}

// exchangeState is how far an exchange is. Only exchangeTransitions changes it.
type exchangeState uint8

const (
	unsent        exchangeState = iota // the link has never had it
	departing                          // it has a handle, and waits for an accelerator or behind one that does
	offered                            // the link decides whether it takes it; responses may already come
	finishedEarly                      // its handle has completed while SendAll was still running
	inFlight                           // the link has taken it
	finished                           // its handle has completed

	exchangeStates = iota
)

// exchangeEvent is what changes an exchangeState.
type exchangeEvent uint8

const (
	offerAll exchangeEvent = iota // the link is about to get the requests
	depart                        // it is about to wait in Worker.departures
	accept                        // the link has taken them
	finish                        // the handle completes

	exchangeEvents = iota
)

// exchangeTransitions is the state after each event in each state. The zero value stands where the event cannot happen.
// An exchange that the link refuses is recycled, and so is one that is finished when no request has anything pending.
var exchangeTransitions = [exchangeEvents][exchangeStates]exchangeState{
	offerAll: {unsent: offered, departing: offered},
	depart:   {unsent: departing},
	accept:   {offered: inFlight, finishedEarly: finished},
	finish:   {departing: finished, offered: finishedEarly, inFlight: finished},
}

// after returns the state after e.
func (s exchangeState) after(e exchangeEvent) exchangeState { return exchangeTransitions[e][s] }

// completed reports whether the handle has completed.
func (s exchangeState) completed() bool { return s == finishedEarly || s == finished }

// accepted reports whether the link has said that it took the exchange.
func (s exchangeState) accepted() bool { return s == inFlight || s == finished }
