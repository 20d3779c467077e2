package mutant

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var errTwice = errors.New("closed already")

var lifeMutations = []Mutation{
	{Name: "reports a loss twice", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventLost {
				return []van.Event{ev, ev}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "reports no loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventLost {
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "reports the loss of one endpoint of several", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventLost && v.every(4) {
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "delivers after the loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = swap(van.EventMessage, van.EventLost)
	}},
	{Name: "completes after the loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = swap(van.EventCompletion, van.EventLost)
	}},
	{Name: "reports a loss where it was closed", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEnd = func(e *endpoint) {
			v.add(van.Event{Kind: van.EventLost, Endpoint: e, Err: stepvan.ErrPeerLost})
		}
	}},
	{Name: "drops what arrived before the loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) (out []van.Event) {
			for _, ev := range events {
				if ev.Kind == van.EventMessage && lostAmong(events) {
					ev.Delivery.Release()
					continue
				}
				out = append(out, ev)
			}
			return out
		}
	}},
	{Name: "closes once only", Clauses: []int{6}, mutate: func(v *mutantVan) {
		v.onClose = func(times int) error {
			if times > 1 {
				return errTwice
			}
			return nil
		}
	}},
	{Name: "leaves dialers waiting at Close", Clauses: []int{6}, mutate: func(v *mutantVan) {
		v.onDial = func(err error) error {
			if errors.Is(err, stepvan.ErrClosed) {
				<-v.reopened
			}
			return err
		}
	}},
	{Name: "sends after Close", Clauses: []int{6}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			op := m.Op
			err := e.Endpoint.Send(m)
			if errors.Is(err, stepvan.ErrClosed) {
				v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op, Err: err})
				return nil
			}
			return err
		}
	}},
	{Name: "blames the network for a bad peer", Clauses: []int{7}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventLost {
				ev.Err = stepvan.ErrPeerLost
			}
			return []van.Event{ev}
		})
	}},
	{Name: "drops everybody because of one bad peer", Clauses: []int{7, 11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			var pe *stepvan.ProtocolError
			if ev.Kind == van.EventLost && errors.As(ev.Err, &pe) {
				for _, e := range v.endpoints() {
					_ = e.Endpoint.Close()
				}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "loses no bad peer", Clauses: []int{7}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			var pe *stepvan.ProtocolError
			if ev.Kind == van.EventLost && errors.As(ev.Err, &pe) {
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "wakes nobody", Clauses: []int{0, 1, 6, 10}, mutate: func(v *mutantVan) { v.deaf.Store(true) }},
	{Name: "wakes no van that is armed", Clauses: []int{0}, mutate: func(v *mutantVan) {
		v.onArm = func(armed bool) bool {
			v.deaf.Store(armed)
			return armed
		}
	}},
	{Name: "arms although there is something", Clauses: []int{0}, mutate: func(v *mutantVan) {
		v.onArm = func(bool) bool { return true }
	}},
	{Name: "never arms", Clauses: []int{0}, mutate: func(v *mutantVan) {
		v.onArm = func(bool) bool { return false }
	}},
	{Name: "accepts twice", Clauses: []int{0, 10}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventAccepted {
				return []van.Event{ev, ev}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "forgets the user", Clauses: []int{0}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			ev.Endpoint.SetUser(nil)
			return []van.Event{ev}
		})
	}},
}

func (v *mutantVan) endpoints() []*endpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := make([]*endpoint, 0, len(v.known))
	for _, e := range v.known {
		list = append(list, e)
	}
	return list
}

func lostAmong(events []van.Event) bool {
	return slices.ContainsFunc(events, func(ev van.Event) bool { return ev.Kind == van.EventLost })
}
