package mutant

import (
	"errors"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// viewMutations need views.
var viewMutations = []Mutation{
	{Name: "maps a copy", Clauses: []int{8}, mutate: mapped(func(w *van.View) { w.Bytes = slices.Clone(w.Bytes) })},
	{Name: "maps one byte beside", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(g van.Viewer, r mapRequest) (van.View, error) {
			if r.to.Offset > 0 && r.to.Offset < 8192 {
				r.to.Offset--
			}
			return r.ask(g)
		}
	}},
	{Name: "gives every right in a view", Clauses: []int{8}, mutate: mapInstead(stepvan.ErrInvalid, func(r *mapRequest) {
		r.rights &^= van.RightWrite
	})},
	{Name: "maps what lies behind the grant", Clauses: []int{8}, mutate: mapInstead(stepvan.ErrInvalid, func(r *mapRequest) {
		if r.to.Offset > 50 && r.n < 1<<20 {
			r.to.Offset = 0
		}
	})},
	{Name: "maps through an older generation", Clauses: []int{8}, mutate: mapInstead(stepvan.ErrStale, func(r *mapRequest) {
		r.to.Generation++
	})},
	{Name: "releases a view at once", Clauses: []int{8, 11}, mutate: mapped(func(w *van.View) {
		w.Release()
		w.Holder = nobody{}
	})},
	{Name: "never releases a view", Clauses: []int{8, 11}, mutate: mapped(func(w *van.View) { w.Holder = nobody{} })},
	{Name: "does not see that the owner of a view has ended", Clauses: []int{8}, mutate: mapped(func(w *van.View) {
		w.Holder = blind{w.Holder}
	})},
	{Name: "tells with the loss that the peer is detached", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			events = rewrite(events, van.EventDetached, func(van.Event) []van.Event { return nil })
			return rewrite(events, van.EventLost, func(ev van.Event) []van.Event {
				return []van.Event{ev, {Kind: van.EventDetached, Endpoint: ev.Endpoint}}
			})
		}
	}},
}

// mapped changes a view that the inner Map has returned.
func mapped(change func(*van.View)) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onMap = func(g van.Viewer, r mapRequest) (van.View, error) {
			w, err := r.ask(g)
			if err == nil {
				change(&w)
			}
			return w, err
		}
	}
}

// mapInstead asks for another view when the inner Map returns an error.
func mapInstead(kind error, change func(*mapRequest)) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onMap = func(g van.Viewer, r mapRequest) (van.View, error) {
			w, err := r.ask(g)
			if errors.Is(err, kind) {
				change(&r)
				return r.ask(g)
			}
			return w, err
		}
	}
}

// nobody releases nothing.
type nobody struct{}

func (nobody) ReleaseView(van.View)     {}
func (nobody) OwnerEnded(van.View) bool { return false }

// blind sees no end.
type blind struct{ van.ViewHolder }

func (blind) OwnerEnded(van.View) bool { return false }
