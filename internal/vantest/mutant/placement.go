package mutant

import (
	"slices"
	"unsafe"

	"github.com/stepvan/stepvan/van"
)

var placementMutations = []Mutation{
	{Name: "delivers before the payload is there", Clauses: []int{3}, mutate: payloadLate},
	{Name: "cuts the last byte of a payload", Clauses: []int{3}, mutate: afterPlace(func(longest []byte) {
		longest[len(longest)-1] ^= 1
	})},
	{Name: "writes one byte too much", Clauses: []int{8}, mutate: afterPlace(func(longest []byte) {
		unsafe.Slice(&longest[0], len(longest)+1)[len(longest)] = 0
	})},
	{Name: "asks the Placer twice", Clauses: []int{8}, mutate: place(func(v *mutantVan, r placeRequest) ([][]byte, error) {
		if v.every(10) {
			_, _ = v.ask(r)
		}
		return v.ask(r)
	})},
	{Name: "does not show the Placer the meta", Clauses: []int{8}, mutate: place(func(v *mutantVan, r placeRequest) ([][]byte, error) {
		r.meta = nil
		return v.ask(r)
	})},
	{Name: "does not ask the Placer", Clauses: []int{8}, mutate: place(func(v *mutantVan, r placeRequest) ([][]byte, error) {
		if v.every(10) {
			return append(r.dst, make([]byte, r.h.Payload)), nil
		}
		return v.ask(r)
	})},
	{Name: "hides a refusal", Clauses: []int{8}, mutate: place(func(v *mutantVan, r placeRequest) ([][]byte, error) {
		got, err := v.ask(r)
		if err != nil {
			return append(r.dst, make([]byte, r.h.Payload)), nil
		}
		return got, nil
	})},
	{Name: "drops refused messages", Clauses: []int{4, 8}, mutate: drop(van.EventMessage, func(_ *mutantVan, ev van.Event) bool {
		return ev.Delivery.Refused != nil
	})},
}

// place makes a mutation that says what Place returns.
func place(fn func(*mutantVan, placeRequest) ([][]byte, error)) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onPlace = func(r placeRequest) ([][]byte, error) { return fn(v, r) }
	}
}

// afterPlace harms the longest segment of every tenth destination just before its message is delivered.
func afterPlace(harm func(longest []byte)) func(*mutantVan) {
	type message struct {
		ep       van.Endpoint
		sequence uint64
	}
	return func(v *mutantVan) {
		longest := map[message][]byte{}
		v.onPlace = func(r placeRequest) ([][]byte, error) {
			dst, err := v.ask(r)
			if err == nil {
				longest[message{r.e, r.h.Sequence}] = slices.MaxFunc(dst, func(a, b []byte) int { return len(a) - len(b) })
			}
			return dst, err
		}
		edit(van.EventMessage, func(_ *mutantVan, ev *van.Event) {
			m := message{ev.Endpoint, ev.Delivery.Header.Sequence}
			if b, ok := longest[m]; ok && v.every(10) && len(b) > 100 {
				harm(b)
			}
			delete(longest, m)
		})(v)
	}
}

// payloadLate receives every tenth payload somewhere else and moves it at the next Poll.
func payloadLate(v *mutantVan) {
	type move struct{ to, from [][]byte }
	var moves []move
	v.onPlace = func(r placeRequest) ([][]byte, error) {
		dst := r.dst
		r.dst = nil
		real, err := v.ask(r)
		if err != nil || !v.every(10) {
			return append(dst, real...), err
		}
		m := move{to: real}
		for _, s := range real {
			m.from = append(m.from, make([]byte, len(s)))
		}
		moves = append(moves, m)
		return append(dst, m.from...), nil
	}
	v.onPoll = func() {
		for _, m := range moves {
			for i := range m.to {
				copy(m.to[i], m.from[i])
			}
		}
		moves = nil
	}
}
