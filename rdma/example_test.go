package rdma_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/rdma"
	"github.com/stepvan/stepvan/van"
)

// inbox is a Placer: each payload goes to its beginning.
type inbox []byte

func (b inbox) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, b[:h.Payload]), nil
}

// A van listens on the device that has the address. It needs RDMA devices, so nothing is shown here.
func ExampleNew() {
	server, err := rdma.New(rdma.Options{Placer: make(inbox, 1<<20), Devices: []string{"mlx5_0"}})
	if err != nil {
		fmt.Println(err) // no device, no library, or no cgo: another van does it
		return
	}
	defer server.Close()
	worker, err := rdma.New(rdma.Options{Placer: make(inbox, 1<<20)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()
	addr, _ := server.Listen("rdma://10.0.0.1:0")
	endpoint, err := worker.Dial(context.Background(), addr)
	fmt.Println(endpoint.Peer(), err)
}
