package mutant

import (
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

var viewMutations = []Mutation{
	{Name: "maps a copy", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			w.Bytes = append([]byte(nil), w.Bytes...)
			return w, err
		}
	}},
	{Name: "maps one byte beside", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			if t.Offset > 0 && t.Offset < 8192 {
				t.Offset--
			}
			return e.granter().Map(t, n, rights)
		}
	}},
	{Name: "gives every right in a view", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			if errors.Is(err, stepvan.ErrInvalid) && rights&van.RightWrite != 0 {
				return e.granter().Map(t, n, van.RightRead)
			}
			return w, err
		}
	}},
	{Name: "maps what lies behind the grant", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			if errors.Is(err, stepvan.ErrInvalid) && t.Offset > 50 && n < 1<<20 {
				return e.granter().Map(van.Target{Grant: t.Grant, Generation: t.Generation}, n, rights)
			}
			return w, err
		}
	}},
	{Name: "maps through an older generation", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			if errors.Is(err, stepvan.ErrStale) {
				t.Generation++
				return e.granter().Map(t, n, rights)
			}
			return w, err
		}
	}},
	{Name: "releases a view at once", Clauses: []int{8, 11}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			if err == nil {
				w.Release()
				w.Holder = nobody{}
			}
			return w, err
		}
	}},
	{Name: "never releases a view", Clauses: []int{8, 11}, mutate: func(v *mutantVan) {
		v.onMap = func(e *endpoint, t van.Target, n int64, rights van.Rights) (van.View, error) {
			w, err := e.granter().Map(t, n, rights)
			w.Holder = nobody{}
			return w, err
		}
	}},
	{Name: "hides that a message was written", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			ev.Delivery.Written = false
			return []van.Event{ev}
		})
	}},
	{Name: "calls every message written", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			ev.Delivery.Written = true
			return []van.Event{ev}
		})
	}},
	{Name: "tells nobody when its peer is detached", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventDetached {
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "tells twice that a peer is detached", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			if ev.Kind == van.EventDetached {
				return []van.Event{ev, ev}
			}
			return []van.Event{ev}
		})
	}},
	{Name: "tells with the loss that the peer is detached", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = each(func(ev van.Event) []van.Event {
			switch ev.Kind {
			case van.EventLost:
				return []van.Event{ev, {Kind: van.EventDetached, Endpoint: ev.Endpoint}}
			case van.EventDetached:
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "detaches before the loss", Clauses: []int{11}, mutate: func(v *mutantVan) {
		v.onEvents = swap(van.EventLost, van.EventDetached)
	}},
}

type nobody struct{}

func (nobody) ReleaseView(van.View) {}

func (e *endpoint) granter() van.Granter { return e.Endpoint.(van.Granter) }
