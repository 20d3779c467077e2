package ps_test

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// A scheduler, a server and a worker in one process; in earnest each is a process that
// calls ps.StartFromEnv. The errors are left out.
func Example() {
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

	go func() { // the server doubles what it gets
		for {
			batch, err := server.GetBatch(ctx, ps.LockStep)
			if err != nil { // stepvan.ErrClosed: the worker has stopped
				server.Stop(ctx)
				return
			}
			for _, r := range batch.Requests {
				x, _ := tensor.As[float32](r.Pushes()[0])
				for i := range x {
					x[i] *= 2
				}
				server.Respond(r.Pushes(), r.ID)
			}
		}
	}()

	x, _ := tensor.FromSlice([]float32{1, 2, 3})
	y, _ := tensor.FromSlice(make([]float32, 3))
	h, _ := worker.PushPull([]tensor.Tensor{x}, []tensor.Key{1}, []tensor.Tensor{y}, []tensor.Key{2})
	fmt.Println(h.Wait(ctx))
	result, _ := tensor.As[float32](y)
	fmt.Println(result)
	fmt.Println(worker.Stop(ctx))
	// Output:
	// <nil>
	// [2 4 6]
	// <nil>
}
