package mutant

import (
	"unsafe"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

var placementMutations = []Mutation{
	{Name: "delivers before the payload is there", Clauses: []int{3}, mutate: payloadLate},
	{Name: "cuts the last byte of a payload", Clauses: []int{3}, mutate: func(v *mutantVan) {
		v.afterPlace(func(dst [][]byte) {
			if s := longest(dst); len(s) > 100 {
				s[len(s)-1] ^= 1
			}
		})
	}},
	{Name: "writes one byte too much", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.afterPlace(func(dst [][]byte) {
			if s := longest(dst); len(s) > 100 {
				unsafe.Slice(&s[0], len(s)+1)[len(s)] = 0
			}
		})
	}},
	{Name: "asks the Placer twice", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onPlace = func(ep *endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
			if v.every(10) {
				_, _ = v.placer.Place(ep, h, meta, nil)
			}
			return v.placer.Place(ep, h, meta, dst)
		}
	}},
	{Name: "does not show the Placer the meta", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onPlace = func(ep *endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
			return v.placer.Place(ep, h, nil, dst)
		}
	}},
	{Name: "does not ask the Placer", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onPlace = func(ep *endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
			if v.every(10) {
				return append(dst, make([]byte, h.Payload)), nil
			}
			return v.placer.Place(ep, h, meta, dst)
		}
	}},
	{Name: "hides a refusal", Clauses: []int{8}, mutate: func(v *mutantVan) {
		v.onPlace = func(ep *endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
			got, err := v.placer.Place(ep, h, meta, dst)
			if err != nil {
				return append(dst, make([]byte, h.Payload)), nil
			}
			return got, nil
		}
	}},
	{Name: "drops refused messages", Clauses: []int{4, 8}, mutate: func(v *mutantVan) {
		v.onEvents = onMessages(func(ev van.Event) []van.Event {
			if ev.Delivery.Refused != nil {
				ev.Delivery.Release()
				return nil
			}
			return []van.Event{ev}
		})
	}},
	{Name: "completes a withdrawal without withdrawing", Clauses: []int{8}, races: true, mutate: func(v *mutantVan) {
		v.withdraw = func(e *endpoint, _ van.GrantID, op van.OpID) error {
			v.add(van.Event{Kind: van.EventCompletion, Endpoint: e, Op: op})
			return nil
		}
	}},
	{Name: "ignores withdrawals", Clauses: []int{8}, races: true, mutate: func(v *mutantVan) {
		v.withdraw = func(*endpoint, van.GrantID, van.OpID) error { return nil }
	}},
	{Name: "writes one-sided beside the target", Clauses: []int{3, 8}, mutate: func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			if len(m.Target) > 0 && m.Target[0].Offset > 0 {
				m.Target[0].Offset--
			}
			return e.Endpoint.Send(m)
		}
	}},
}

func longest(dst [][]byte) (s []byte) {
	for _, d := range dst {
		if len(d) > len(s) {
			s = d
		}
	}
	return s
}

// placed is what the Placer gave for a message.
type placed struct {
	ep       van.Endpoint
	sequence uint64
}

// afterPlace does something to the destination of a payload just before its message is delivered.
func (v *mutantVan) afterPlace(harm func(dst [][]byte)) {
	where := map[placed][][]byte{}
	v.onPlace = func(ep *endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
		dst, err := v.placer.Place(ep, h, meta, dst)
		if err == nil {
			where[placed{ep, h.Sequence}] = append([][]byte(nil), dst...)
		}
		return dst, err
	}
	v.onEvents = onMessages(func(ev van.Event) []van.Event {
		key := placed{ev.Endpoint, ev.Delivery.Header.Sequence}
		if dst := where[key]; dst != nil && v.every(10) {
			harm(dst)
		}
		delete(where, key)
		return []van.Event{ev}
	})
}

// payloadLate receives every tenth payload somewhere else and moves it at the next Poll.
func payloadLate(v *mutantVan) {
	type move struct{ to, from [][]byte }
	var moves []move
	v.onPlace = func(ep *endpoint, h *wire.Header, meta []byte, dst [][]byte) ([][]byte, error) {
		real, err := v.placer.Place(ep, h, meta, nil)
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
