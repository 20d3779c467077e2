package pairtest

import (
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// Traffic counts what the instances on a Van receive.
type Traffic struct {
	Messages atomic.Int64 // with payload
	Bytes    atomic.Int64 // of payload, into whatever memory of the receiver
	Written  atomic.Int64 // messages that their sender wrote into memory of the receiver
	Notes    atomic.Int64 // messages of peers, with payload or without

	mu   sync.Mutex
	from map[string]int64 // bytes of payload by the address that they come from
}

// From is how many bytes of payload have come to instances that have dialled an address, from there.
func (x *Traffic) From(addr string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.from[addr]
}

func (x *Traffic) came(addr string, bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.from == nil {
		x.from = map[string]int64{}
	}
	x.from[addr] += bytes
}

// Watch returns v with a count of all that arrives.
func Watch(v Van) (Van, *Traffic) {
	traffic := new(Traffic)
	maker := v.Maker
	v.Maker = func(instance string, memory *tensor.Allocator) link.VanMaker {
		return func(p van.Placer, wake func()) (van.Van, error) {
			inner, err := maker(instance, memory)(p, wake)
			return &watched{inner, traffic}, err
		}
	}
	return v, traffic
}

type watched struct {
	van.Van
	traffic *Traffic
}

// Register implements van.Registrar.
func (w *watched) Register(mem []byte) error { return w.Van.(van.Registrar).Register(mem) }

// Deregister implements van.Registrar.
func (w *watched) Deregister(mem []byte) error { return w.Van.(van.Registrar).Deregister(mem) }

// RegisterAccelerator implements van.AcceleratorRegistrar.
func (w *watched) RegisterAccelerator(mem []byte, fd int, offset int64) error {
	return w.Van.(van.AcceleratorRegistrar).RegisterAccelerator(mem, fd, offset)
}

func (w *watched) Poll(events []van.Event, all bool) int {
	n := w.Van.Poll(events, all)
	for _, e := range events[:n] {
		if e.Kind == van.EventMessage && e.Delivery.Header.Kind == wire.KindData && e.Delivery.Header.Channel >= link.ChannelPeer {
			w.traffic.Notes.Add(1)
		}
		switch {
		case e.Kind != van.EventMessage || e.Delivery.Header.Payload == 0:
		case e.Delivery.Written:
			w.traffic.Messages.Add(1)
			w.traffic.Written.Add(1)
		default:
			w.traffic.Messages.Add(1)
			w.traffic.Bytes.Add(int64(e.Delivery.Header.Payload))
			w.traffic.came(e.Endpoint.Peer(), int64(e.Delivery.Header.Payload))
		}
	}
	return n
}
