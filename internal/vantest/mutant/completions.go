package mutant

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var completionMutations = []Mutation{
	{Name: "completes twice", Clauses: []int{1}, mutate: repeat(van.EventCompletion, every(10))},
	{Name: "loses a completion", Clauses: []int{1}, mutate: drop(van.EventCompletion, every(40))},
	{Name: "completes an operation that was not accepted", Clauses: []int{1, 5}, mutate: afterSend(func(s sent) error {
		if s.err != nil {
			s.complete(s.op, s.err)
		}
		return s.err
	})},
	{Name: "completes in Send and once more", Clauses: []int{1}, mutate: afterSend(func(s sent) error {
		s.m.Done = s.m.Done || s.van.every(10)
		return s.err
	})},
	{Name: "completes in Send before it has read the source", Clauses: []int{2, 3}, mutate: func(v *mutantVan) {
		early := map[van.OpID]bool{}
		afterSend(func(s sent) error {
			if s.err == nil && !s.m.Done {
				s.m.Done, early[s.op] = true, true
			}
			return s.err
		})(v)
		drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return early[ev.Op] })(v)
	}},
	{Name: "forgets completions at Close", Clauses: []int{1}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			if v.isClosed() {
				return nil
			}
			return events
		}
	}},
	{Name: "completes before it has read the source", Clauses: []int{2}, mutate: func(v *mutantVan) {
		afterSend(func(s sent) error {
			if s.err == nil {
				s.complete(s.op, nil)
			}
			return s.err
		})(v)
		drop(van.EventCompletion, every(1))(v)
	}},
	{Name: "keeps the message after Send", Clauses: []int{1, 2, 3}, mutate: keepMessage},
	{Name: "reads the source after Send, though there is memory to spare", Clauses: []int{2, 3},
		mutate: beforeSend(func(m *van.Message) { m.Spare = nil })},
	{Name: "sends what it rejected", Clauses: []int{5}, mutate: sendRejected},
	{Name: "stays full for ever", Clauses: []int{5}, mutate: func(v *mutantVan) {
		full := map[*endpoint]bool{}
		v.onSend = func(e *endpoint, m *van.Message) error {
			if full[e] {
				return stepvan.ErrWouldBlock
			}
			err := e.Endpoint.Send(m)
			full[e] = errors.Is(err, stepvan.ErrWouldBlock)
			return err
		}
	}},
	{Name: "never says that it is full", Clauses: []int{5}, mutate: hideError(stepvan.ErrWouldBlock)},
	{Name: "takes messages of any size", Clauses: []int{1, 12}, mutate: hideError(stepvan.ErrInvalid)},
}

// hideError completes operations that the inner Send rejects with an error.
func hideError(kind error) func(*mutantVan) {
	return afterSend(func(s sent) error {
		if errors.Is(s.err, kind) {
			s.complete(s.op, nil)
			return nil
		}
		return s.err
	})
}

// keepMessage gives a message to the inner van at the next Poll only, out of the caller's own Message.
func keepMessage(v *mutantVan) {
	type late struct {
		e       *endpoint
		m       van.Message
		payload [][]byte
	}
	var kept []late
	v.onSend = func(e *endpoint, m *van.Message) error {
		if len(m.Payload) < 2 || len(m.Target) > 0 {
			return e.Endpoint.Send(m)
		}
		kept = append(kept, late{e, *m, m.Payload})
		v.ring()
		return nil
	}
	v.onPoll = func() {
		for len(kept) > 0 && !errors.Is(kept[0].e.Endpoint.Send(&kept[0].m), stepvan.ErrWouldBlock) {
			kept = kept[1:]
		}
	}
}

// sendRejected sends a copy of what a full queue has rejected later on.
func sendRejected(v *mutantVan) {
	const hidden = 1 << 60
	var kept *van.Message
	var to *endpoint
	afterSend(func(s sent) error {
		if errors.Is(s.err, stepvan.ErrWouldBlock) && kept == nil {
			to, kept = s.endpoint, &van.Message{Op: hidden, Head: slices.Clone(s.m.Head)}
			for _, b := range s.m.Payload {
				kept.Payload = append(kept.Payload, slices.Clone(b))
			}
		}
		return s.err
	})(v)
	v.onPoll = func() {
		if kept != nil && to.Endpoint.Send(kept) == nil {
			kept = nil
		}
	}
	drop(van.EventCompletion, func(_ *mutantVan, ev van.Event) bool { return ev.Op == hidden })(v)
}
