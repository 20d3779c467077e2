package pairtest

import (
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Traffic counts what the nodes of a Van receive.
type Traffic struct {
	Messages atomic.Int64 // with payload
	Bytes    atomic.Int64 // of payload that the receiver took, in whatever memory
	Written  atomic.Int64 // messages that their sender wrote into memory of the receiver
}

// Watch is v, with all that arrives counted.
func Watch(v Van) (Van, *Traffic) {
	seen := new(Traffic)
	maker := v.Maker
	v.Maker = func(node string, memory *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			inner, err := maker(node, memory)(p, wake)
			return &watched{inner, seen}, err
		}
	}
	return v, seen
}

type watched struct {
	van.Van
	seen *Traffic
}

func (w *watched) Poll(events []van.Event, all bool) int {
	n := w.Van.Poll(events, all)
	for _, e := range events[:n] {
		switch {
		case e.Kind != van.EventMessage || e.Delivery.Header.Payload == 0:
		case e.Delivery.Written:
			w.seen.Messages.Add(1)
			w.seen.Written.Add(1)
		default:
			w.seen.Messages.Add(1)
			w.seen.Bytes.Add(int64(e.Delivery.Header.Payload))
		}
	}
	return n
}
