package mutant

import (
	"slices"

	"github.com/stepvan/stepvan/van"
)

var messageMutations = []Mutation{
	{Name: "drops a message", Clauses: []int{4}, mutate: drop(van.EventMessage, every(20))},
	{Name: "delivers twice", Clauses: []int{4}, mutate: repeat(van.EventMessage, every(20))},
	{Name: "reorders", Clauses: []int{4}, mutate: swap(van.EventMessage, van.EventMessage, every(5))},
	{Name: "delivers at another connection", Clauses: []int{4}, mutate: func(v *mutantVan) {
		var last van.Endpoint
		edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
			at := ev.Endpoint
			if last != nil && v.every(20) {
				ev.Endpoint = last
			}
			last = at
		})(v)
	}},
	{Name: "delivers before EventAccepted", Clauses: []int{10}, mutate: func(v *mutantVan) {
		waiting := false
		v.replace(van.EventAccepted, func(ev van.Event) []van.Event {
			if !waiting && v.every(2) {
				waiting = true
				v.ring()
				return nil
			}
			return []van.Event{ev, ev}
		})
	}},
	{Name: "overwrites the meta of a held delivery", Clauses: []int{9}, mutate: spoilHeld(func(d *van.Delivery) {
		if len(d.Meta) > 0 {
			d.Meta[len(d.Meta)-1] ^= 0xFF
		}
	})},
	{Name: "overwrites the header of a held delivery", Clauses: []int{9}, mutate: spoilHeld(func(d *van.Delivery) {
		d.Header.Sequence++
	})},
	{Name: "gives credit back by itself", Clauses: []int{9}, mutate: edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
		d := clone(ev.Delivery)
		ev.Delivery.Release()
		ev.Delivery = d
	})},
	{Name: "keeps a credit", Clauses: []int{9}, mutate: edit(van.EventMessage, func(v *mutantVan, ev *van.Event) {
		if v.every(7) {
			ev.Delivery = clone(ev.Delivery)
		}
	})},
}

// inert releases nothing.
type inert struct{}

func (inert) ReleaseDelivery(*van.Delivery) {}

// clone copies a delivery; releasing the copy does nothing.
func clone(d *van.Delivery) *van.Delivery {
	c := *d
	c.Meta = slices.Clone(d.Meta)
	c.Releaser = inert{}
	return &c
}

// spoilHeld damages every 20th delivery once, if it is still held when the next Poll begins.
func spoilHeld(damage func(*van.Delivery)) func(*mutantVan) {
	return func(v *mutantVan) {
		held := map[*van.Delivery]bool{}
		edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
			d := clone(ev.Delivery)
			d.Releaser = forget{v, held, ev.Delivery}
			if v.every(20) {
				held[d] = true
			}
			ev.Delivery = d
		})(v)
		v.onPoll = func() {
			for d := range held {
				delete(held, d)
				damage(d)
			}
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
