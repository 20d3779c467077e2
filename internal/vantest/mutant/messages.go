package mutant

import (
	"github.com/stepvan/stepvan/van"
)

// onMessages makes a batch hook that sees messages only.
func onMessages(fn func(ev van.Event) []van.Event) func([]van.Event) []van.Event {
	return each(func(ev van.Event) []van.Event {
		if ev.Kind != van.EventMessage {
			return []van.Event{ev}
		}
		return fn(ev)
	})
}

var messageMutations = []Mutation{
	{Name: "drops a message", Clauses: []int{4}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			if v.every(20) {
				ev.Delivery.Release()
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "delivers twice", Clauses: []int{4}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			if v.every(20) {
				return []van.Event{ev, {Kind: ev.Kind, Endpoint: ev.Endpoint, Delivery: clone(ev.Delivery)}}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "reorders", Clauses: []int{4}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			if v.every(5) {
				return swap(van.EventMessage, van.EventMessage)(events)
			}
			return events
		}
	}},
	{Name: "delivers at another connection", Clauses: []int{4}, mutate: func(v *mutantVan) {
		var last van.Endpoint
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			at := ev.Endpoint
			if last != nil && v.every(20) {
				ev.Endpoint = last
			}
			last = at
			return []van.Event{ev}
		})
	}},
	{Name: "delivers before EventAccepted", Clauses: []int{10}, mutate: func(v *mutantVan) {
		waiting := map[van.Endpoint]van.Event{}
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventAccepted {
				if len(waiting) == 0 && v.every(2) {
					waiting[ev.Endpoint] = ev
					v.ring()
					return nil
				}
				return []van.Event{ev, ev}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "overwrites the meta of a held delivery", Clauses: []int{9}, mutate: func(v *mutantVan) {
		v.spoilHeld(func(d *van.Delivery) {
			if len(d.Meta) > 0 {
				d.Meta[len(d.Meta)-1] ^= 0xFF
			}
		})
	}},
	{Name: "overwrites the header of a held delivery", Clauses: []int{9}, mutate: func(v *mutantVan) {
		v.spoilHeld(func(d *van.Delivery) { d.Header.Sequence++ })
	}},
	{Name: "gives credit back by itself", Clauses: []int{9}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			d := clone(ev.Delivery)
			ev.Delivery.Release()
			ev.Delivery = d
			return []van.Event{ev}
		})
	}},
	{Name: "keeps a credit", Clauses: []int{9}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			if v.every(7) {
				ev.Delivery = clone(ev.Delivery)
			}
			return []van.Event{ev}
		})
	}},
}

// inert releases nothing.
type inert struct{}

func (inert) ReleaseDelivery(*van.Delivery) {}

// clone copies a delivery; releasing the copy does nothing.
func clone(d *van.Delivery) *van.Delivery {
	c := *d
	c.Meta = append([]byte(nil), d.Meta...)
	c.Releaser = inert{}
	return &c
}

// spoilHeld damages every 20th delivery once, if it is still held when the next Poll begins.
func (v *mutantVan) spoilHeld(damage func(*van.Delivery)) {
	held := map[*van.Delivery]bool{}
	v.onEvents = onMessages(func(ev van.Event) []van.Event {
		d := clone(ev.Delivery)
		d.Releaser = forget{v, held, ev.Delivery}
		if v.every(20) {
			held[d] = true
		}
		ev.Delivery = d
		return []van.Event{ev}
	})
	v.onPoll = func() {
		for d := range held {
			delete(held, d)
			damage(d)
		}
	}
}

// forget takes a delivery off the list and releases the original.
type forget struct {
	v        *mutantVan
	held     map[*van.Delivery]bool
	original *van.Delivery
}

func (f forget) ReleaseDelivery(d *van.Delivery) {
	f.v.hook.Lock()
	delete(f.held, d)
	f.v.hook.Unlock()
	f.original.Release()
}
