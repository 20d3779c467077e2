package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestTransitions(t *testing.T) {
	const no = 0xff // the event cannot happen
	for _, c := range []struct {
		name  string
		event requestEvent
		steps map[requestState]requestState
	}{
		{"tensors are lent before the message is sent", lendTensors, map[requestState]requestState{
			0: lentOut, lentOut: lentOut, unacknowledged | unanswered: no, receiving: no,
		}},
		{"the message is offered once", offer, map[requestState]requestState{
			0: unacknowledged | unanswered, lentOut: unacknowledged | unanswered | lentOut, unacknowledged: no, unanswered: no, receiving: no,
		}},
		{"the message is received once, before or after the answer", acknowledge, map[requestState]requestState{
			unacknowledged | unanswered: unanswered, unacknowledged | unanswered | lentOut: unanswered | lentOut, unacknowledged: 0, unanswered: no, 0: no,
			unacknowledged | unanswered | receiving | placing: unanswered | receiving | placing,
		}},
		{"one response, while it is waited for", beginPlace, map[requestState]requestState{
			unanswered: unanswered | receiving | placing, unanswered | unacknowledged | lentOut: unanswered | unacknowledged | lentOut | receiving | placing,
			0: no, lentOut: no, unanswered | receiving: no, unanswered | receiving | placing: no, receiving: no,
		}},
		{"one response, also for nobody", beginDiscard, map[requestState]requestState{
			unanswered: unanswered | receiving, unanswered | lentOut: unanswered | lentOut | receiving,
			0: no, lentOut: no, unanswered | receiving: no, unanswered | receiving | placing: no, receiving: no,
		}},
		{"a response that ends is not the answer yet", endReceive, map[requestState]requestState{
			unanswered | receiving | placing: unanswered, unanswered | receiving | lentOut: unanswered | lentOut,
			receiving: 0, receiving | placing: 0, receiving | lentOut: lentOut, unanswered: no, 0: no,
		}},
		{"an answer gives back what was lent", answer, map[requestState]requestState{
			unanswered: 0, unanswered | lentOut: 0, unanswered | unacknowledged: unacknowledged, lentOut: 0, 0: 0,
			unanswered | receiving: no, receiving | placing: no,
		}},
		{"a lost server keeps what it reaches, and what is being received stays", loseServer, map[requestState]requestState{
			unanswered: 0, unanswered | lentOut: lentOut, unanswered | unacknowledged: unacknowledged, 0: no, lentOut: no,
			unanswered | receiving | placing: receiving | placing, unanswered | receiving: receiving, receiving: no,
		}},
		{"a lost server reaches nothing any more", detachMemory, map[requestState]requestState{
			lentOut: 0, lentOut | receiving: receiving, lentOut | unacknowledged: unacknowledged, lentOut | unanswered | unacknowledged: unanswered | unacknowledged, 0: no, unanswered: no,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for from, want := range c.steps {
				to, ok := from.after(c.event)
				if want == no {
					require.False(t, ok, "%05b", from)
					require.Equal(t, from, to, "%05b", from)
					continue
				}
				require.True(t, ok, "%05b", from)
				require.Equal(t, want, to, "%05b", from)
			}
		})
	}
}

// reachable are all states that events can lead to.
func reachable() (states []requestState) {
	known := map[requestState]bool{0: true}
	states = []requestState{0}
	for i := 0; i < len(states); i++ {
		for e := range requestEvent(requestEvents) {
			if to, ok := states[i].after(e); ok && !known[to] {
				known[to] = true
				states = append(states, to)
			}
		}
	}
	return states
}

func TestRequestStates(t *testing.T) {
	states := reachable()
	require.Len(t, states, 24)
	for _, s := range states {
		if s&placing != 0 {
			require.NotZero(t, s&receiving, "%05b: what is placed is received", s)
		}
		for _, e := range []requestEvent{acknowledge, endReceive, answer, detachMemory} { // all that may still come
			s, _ = s.after(e)
		}
		require.Zero(t, s, "a request that ends leaves nothing")
	}
}

func TestRequestCounts(t *testing.T) {
	x := &activeExchange{}
	a, b := &request{exchange: x}, &request{exchange: x}
	a.on(lendTensors)
	a.on(offer)
	b.on(offer)
	require.Equal(t, unacknowledged|unanswered|lentOut, x.pending)
	require.Equal(t, 2, x.count(unanswered))
	require.False(t, b.on(detachMemory), "nothing was lent")
	require.Equal(t, 1, x.count(lentOut))
	require.True(t, b.on(acknowledge))
	require.True(t, b.on(answer))
	require.Equal(t, 1, x.count(unacknowledged))
	require.True(t, a.on(answer))
	require.Equal(t, unacknowledged, x.pending)
	require.True(t, a.on(acknowledge))
	require.Zero(t, x.requestCounts)
}

func TestExchangeTransitions(t *testing.T) {
	type step struct {
		from exchangeState
		e    exchangeEvent
	}
	allowed := map[step]exchangeState{
		{unsent, offerAll}:      offered,
		{unsent, depart}:        departing,
		{departing, offerAll}:   offered,
		{departing, finish}:     finished,
		{offered, accept}:       inFlight,
		{offered, finish}:       finishedEarly,
		{finishedEarly, accept}: finished,
		{inFlight, finish}:      finished,
	}
	for s := range exchangeState(exchangeStates) {
		for e := range exchangeEvent(exchangeEvents) {
			require.Equal(t, allowed[step{s, e}], s.after(e), "state %d, event %d", s, e)
		}
	}
	for s, is := range map[exchangeState]struct{ completed, accepted bool }{
		unsent: {}, departing: {}, offered: {}, inFlight: {accepted: true}, finishedEarly: {completed: true}, finished: {true, true},
	} {
		require.Equal(t, is.completed, s.completed(), s)
		require.Equal(t, is.accepted, s.accepted(), s)
	}
}
