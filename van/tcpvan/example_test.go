package tcpvan_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// inbox is a Placer that puts every payload at the same place.
type inbox []byte

func (in inbox) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, in[:h.Payload]), nil
}

// One message from a van to another one of the same program.
func ExampleNew() {
	memory := make(inbox, 1024)
	server, err := tcpvan.New(tcpvan.Options{Placer: memory})
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close() }()
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		panic(err)
	}

	worker, err := tcpvan.New(tcpvan.Options{Placer: make(inbox, 1024)})
	if err != nil {
		panic(err)
	}
	defer func() { _ = worker.Close() }()
	ep, err := worker.Dial(context.Background(), addr)
	if err != nil {
		panic(err)
	}
	payload := []byte("activations")
	h := wire.Header{Kind: wire.KindData, Payload: uint64(len(payload)), Total: uint64(len(payload))}
	head := make([]byte, wire.HeaderSize)
	h.Encode(head, nil)
	if err := ep.Send(&van.Message{Op: 1, Head: head, Payload: [][]byte{payload}}); err != nil {
		panic(err)
	}

	var events [8]van.Event
	for got := false; !got; {
		for _, e := range events[:server.Poll(events[:], true)] {
			switch e.Kind {
			case van.EventAccepted:
				fmt.Println("a worker connected")
			case van.EventMessage:
				fmt.Printf("%s\n", e.Delivery.Payload) // a larger one would be in memory
				e.Delivery.Release()
				got = true
			}
		}
	}
	// Output:
	// a worker connected
	// activations
}
