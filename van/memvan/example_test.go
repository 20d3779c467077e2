package memvan_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// buffer places every payload in itself.
type buffer []byte

func (b buffer) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, b[:h.Payload]), nil
}

func ExampleNew() {
	net := memvan.NewNetwork()
	inbox := make(buffer, 1024)
	worker, _ := memvan.New(net, memvan.Options{Name: "worker", Placer: buffer{}})
	server, _ := memvan.New(net, memvan.Options{Name: "server", Placer: inbox})
	defer worker.Close()
	defer server.Close()

	addr, _ := server.Listen("")
	ep, _ := worker.Dial(context.Background(), addr)

	payload := []byte("activations")
	h := wire.Header{Kind: wire.KindData, Payload: uint64(len(payload)), Total: uint64(len(payload))}
	head := make([]byte, wire.HeaderSize)
	h.Encode(head, nil)
	_ = ep.Send(&van.Message{Op: 1, Head: head, Payload: [][]byte{payload}})

	events := make([]van.Event, 8)
	for n := server.Poll(events, true); n > 0; n = server.Poll(events, true) {
		for _, ev := range events[:n] {
			switch ev.Kind {
			case van.EventAccepted:
				fmt.Println("accepted", ev.Endpoint.Peer())
			case van.EventMessage:
				fmt.Printf("%s\n", inbox[:ev.Delivery.Header.Payload])
				ev.Delivery.Release()
			}
		}
	}
	n := worker.Poll(events, true)
	fmt.Println("completions:", n)
	// Output:
	// accepted worker
	// activations
	// completions: 1
}
