package pairtest

import (
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Keeping returns v, which hands over some bytes as kept beside all that peers write. So does a van whose peers send
// small segments along with the head.
func Keeping(v Van, kept []byte) Van {
	maker := v.Maker
	v.Maker = func(instance string, memory *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			inner, err := maker(instance, memory)(p, wake)
			return &keepingVan{inner, kept}, err
		}
	}
	return v
}

type keepingVan struct {
	van.Van
	kept []byte
}

func (k *keepingVan) Poll(events []van.Event, all bool) int {
	n := k.Van.Poll(events, all)
	for i := range events[:n] {
		if e := &events[i]; e.Kind == van.EventMessage && e.Delivery.Written {
			e.Delivery.Payload = k.kept
		}
	}
	return n
}
