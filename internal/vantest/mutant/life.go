package mutant

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var (
	errTwice        = errors.New("closed already")
	errUnknownGrant = fmt.Errorf("unknown grant: %w", stepvan.ErrStale)
)

var lifeMutations = []Mutation{
	{Name: "reports a loss twice", Clauses: []int{11}, mutate: repeat(van.EventLost, every(1))},
	{Name: "reports no loss", Clauses: []int{11}, mutate: drop(van.EventLost, every(1))},
	{Name: "reports the loss of one endpoint of several", Clauses: []int{11}, mutate: drop(van.EventLost, every(4))},
	{Name: "delivers after the loss", Clauses: []int{11}, mutate: swap(van.EventMessage, van.EventLost, every(1))},
	{Name: "completes after the loss", Clauses: []int{11}, mutate: swap(van.EventCompletion, van.EventLost, every(1))},
	{Name: "reports a loss where it was closed", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEnd = func(e *endpoint) {
			v.add(van.Event{Kind: van.EventLost, Endpoint: e, Err: stepvan.ErrPeerLost})
		}
	}},
	{Name: "drops what arrived before the loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			if !slices.ContainsFunc(events, func(ev van.Event) bool { return ev.Kind == van.EventLost }) {
				return events
			}
			return rewrite(events, van.EventMessage, func(ev van.Event) []van.Event {
				ev.Delivery.Release()
				return nil
			})
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
	{Name: "sends after Close", Clauses: []int{6}, mutate: hideError(stepvan.ErrClosed)},
	{Name: "blames the network for a bad peer", Clauses: []int{7}, mutate: edit(van.EventLost, func(_ *mutantVan, ev *van.Event) {
		ev.Err = stepvan.ErrPeerLost
	})},
	{Name: "drops everybody because of one bad peer", Clauses: []int{7, 11}, mutate: edit(van.EventLost, func(v *mutantVan, ev *van.Event) {
		if isProtocol(v, *ev) {
			for _, e := range v.endpoints() {
				_ = e.Endpoint.Close()
			}
		}
	})},
	{Name: "loses no bad peer", Clauses: []int{7}, mutate: drop(van.EventLost, isProtocol)},
	{Name: "wakes nobody", Clauses: []int{0, 1, 6, 10}, mutate: func(v *mutantVan) { v.deaf.Store(true) }},
	{Name: "wakes no van that is armed", Clauses: []int{0}, mutate: func(v *mutantVan) {
		v.onArm = func(armed bool) bool {
			v.deaf.Store(armed)
			return armed
		}
	}},
	{Name: "arms although there is something", Clauses: []int{0}, mutate: func(v *mutantVan) { v.onArm = func(bool) bool { return true } }},
	{Name: "never arms", Clauses: []int{0}, mutate: func(v *mutantVan) { v.onArm = func(bool) bool { return false } }},
	{Name: "accepts twice", Clauses: []int{0, 10}, mutate: repeat(van.EventAccepted, every(1))},
	{Name: "forgets the user", Clauses: []int{0}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		ev.Endpoint.SetUser(nil)
	})},
}

// isProtocol says that a peer was lost because of what it sent.
func isProtocol(_ *mutantVan, ev van.Event) bool {
	var pe *stepvan.ProtocolError
	return errors.As(ev.Err, &pe)
}

// endpoints returns all endpoints of the van.
func (v *mutantVan) endpoints() []*endpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.known))
}
