package ps_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// The server computes in the worker's memory: Request.In is what was pushed, Request.Out is where the answer is wanted,
// and a Respond with it sends no bytes. It needs memory of the worker's node, and pushes above 4 KiB; with other
// memory, and between machines, the same program works, and what it sees are copies. The errors are left out.
func Example_inPlace() {
	ctx := context.Background()
	var settings []ps.Settings
	for _, role := range []ps.Role{ps.RoleScheduler, ps.RoleServer, ps.RoleWorker} {
		s := ps.DefaultSettings()
		s.Role, s.NumWorker, s.NumServer, s.RootURI, s.LogLevel = role, 1, 1, "127.0.0.1", "off"
		settings = append(settings, s)
	}
	nodes, _ := ps.StartAll(ctx, settings)
	scheduler, server, worker := nodes[0], nodes[1], nodes[2]
	go scheduler.Stop(ctx) // returns when all have left

	go func() {
		for {
			batch, err := server.GetBatch(ctx, ps.LockStep)
			if err != nil { // stepvan.ErrClosed: the worker has stopped
				server.Stop(ctx)
				return
			}
			for _, r := range batch.Requests {
				in, _ := r.In(0) // to be read only; both end with the Respond
				out, _ := r.Out(0)
				x, _ := tensor.As[float32](in)
				y, _ := tensor.As[float32](out)
				for i := range y {
					y[i] = 2 * x[i]
				}
				server.Respond([]tensor.Tensor{out}, r.ID)
			}
		}
	}()

	push, _ := worker.Memory().Zeros(tensor.Float32, 4096)
	pull, _ := worker.Memory().Zeros(tensor.Float32, 4096)
	x, _ := tensor.As[float32](push)
	x[0], x[4095] = 1, 2.5
	h, _ := worker.PushPull([]tensor.Tensor{push}, []tensor.Key{1}, []tensor.Tensor{pull}, []tensor.Key{2})
	fmt.Println(h.Wait(ctx))
	y, _ := tensor.As[float32](pull)
	fmt.Println(y[0], y[4095])
	fmt.Println(worker.Stop(ctx))
	// Output:
	// <nil>
	// 2 5
	// <nil>
}
