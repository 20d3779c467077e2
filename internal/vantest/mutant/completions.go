package mutant

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var completionMutations = []Mutation{
	{Name: "completes twice", Clauses: []int{1}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventCompletion && v.every(10) {
				return []van.Event{ev, ev}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "loses a completion", Clauses: []int{1}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventCompletion && v.every(40) {
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "completes an operation that was not accepted", Clauses: []int{1, 5}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			op := m.Op
			err := e.Endpoint.Send(m)
			if err != nil {
				v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op, Err: err})
			}
			return err
		}
	}},
	{Name: "completes in Send and once more", Clauses: []int{1}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			err := e.Endpoint.Send(m)
			m.Done = m.Done || v.every(10)
			return err
		}
	}},
	{Name: "completes in Send before it has read the source", Clauses: []int{2, 3}, mutate: doneEarly},
	{Name: "forgets completions at Close", Clauses: []int{1}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			if v.isClosed() {
				return nil
			}
			return events
		}
	}},
	{Name: "completes before it has read the source", Clauses: []int{2}, mutate: completeEarly},
	{Name: "keeps the message after Send", Clauses: []int{1, 2, 3}, mutate: keepMessage},
	{Name: "reads the source after Send, though there is memory to spare", Clauses: []int{2, 3}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			m.Spare = nil
			return e.Endpoint.Send(m)
		}
	}},
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
	{Name: "never says that it is full", Clauses: []int{5}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			op := m.Op
			err := e.Endpoint.Send(m)
			if errors.Is(err, stepvan.ErrWouldBlock) {
				v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op})
				return nil
			}
			return err
		}
	}},
	{Name: "takes messages of any size", Clauses: []int{1, 12}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			op := m.Op
			err := e.Endpoint.Send(m)
			if errors.Is(err, stepvan.ErrInvalid) {
				v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op})
				return nil
			}
			return err
		}
	}},
}

// completeEarly reports completions at the first Poll after Send.
func completeEarly(v *mutantVan) {
	v.onSend = func(e *endpoint, m *van.Message) error {
		op := m.Op
		err := e.Endpoint.Send(m)
		if err == nil {
			v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op})
		}
		return err
	}
	v.onEvents = each(func(ev van.Event) []van.Event {
		if ev.Kind == van.EventCompletion {
			return nil
		}
		return []van.Event{ev}
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
	type copied struct {
		e *endpoint
		m *van.Message
	}
	var kept []copied
	v.onSend = func(e *endpoint, m *van.Message) error {
		err := e.Endpoint.Send(m)
		if errors.Is(err, stepvan.ErrWouldBlock) && len(kept) == 0 {
			c := &van.Message{Op: hidden, Head: append([]byte(nil), m.Head...)}
			for _, s := range m.Payload {
				c.Payload = append(c.Payload, append([]byte(nil), s...))
			}
			kept = append(kept, copied{e, c})
		}
		return err
	}
	v.onPoll = func() {
		if len(kept) > 0 && kept[0].e.Endpoint.Send(kept[0].m) == nil {
			kept = nil
		}
	}
	v.onEvents = each(func(ev van.Event) []van.Event {
		if ev.Kind == van.EventCompletion && ev.Op == hidden {
			return nil
		}
		return []van.Event{ev}
	})
}

// doneEarly swallows the completions of operations that it called complete.
func doneEarly(v *mutantVan) {
	called := map[van.OpID]bool{}
	v.onSend = func(e *endpoint, m *van.Message) error {
		op := m.Op
		err := e.Endpoint.Send(m)
		if err == nil && !m.Done {
			m.Done, called[op] = true, true
		}
		return err
	}
	v.onEvents = each(func(ev van.Event) []van.Event {
		if ev.Kind == van.EventCompletion && called[ev.Op] {
			delete(called, ev.Op)
			return nil
		}
		return []van.Event{ev}
	})
}
