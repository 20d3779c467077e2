package ps_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// double serves until the worker has stopped: it answers each request with twice what was pushed.
func double(ctx context.Context, server *ps.Node) error {
	for {
		batch, err := server.GetBatch(ctx, ps.LockStep)
		if errors.Is(err, stepvan.ErrClosed) { // every worker has stopped
			return server.Stop(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range batch.Requests {
			x, err := tensor.As[float32](r.Pushes()[0])
			if err != nil {
				return err
			}
			for i := range x {
				x[i] *= 2
			}
			if _, err := server.Respond(r.Pushes(), r.ID); err != nil {
				return err
			}
		}
	}
}

// ask has the server double three numbers, and stops.
func ask(ctx context.Context, worker *ps.Node) error {
	x, err := tensor.FromSlice([]float32{1, 2, 3})
	if err != nil {
		return err
	}
	y, err := tensor.FromSlice(make([]float32, 3))
	if err != nil {
		return err
	}
	h, err := worker.PushPull([]tensor.Tensor{x}, []tensor.Key{1}, []tensor.Tensor{y}, []tensor.Key{2})
	if err != nil {
		return err
	}
	if err := h.Wait(ctx); err != nil {
		return err
	}
	result, err := tensor.As[float32](y)
	if err != nil {
		return err
	}
	fmt.Println(result)
	return worker.Stop(ctx)
}

// A scheduler, a server and a worker in one process. In a real cluster each is a process that calls ps.StartFromEnv.
func Example() {
	ctx := context.Background()
	var settings []ps.Settings
	for _, role := range []ps.Role{ps.RoleScheduler, ps.RoleServer, ps.RoleWorker} {
		s := ps.DefaultSettings()
		s.Role, s.NumWorker, s.NumServer, s.RootURI, s.LogLevel = role, 1, 1, "127.0.0.1", "off"
		settings = append(settings, s)
	}
	nodes, err := ps.StartAll(ctx, settings)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, server, worker := nodes[0], nodes[1], nodes[2]

	ended := make(chan error, 2)
	go func() { ended <- scheduler.Stop(ctx) }() // returns when all have left
	go func() { ended <- double(ctx, server) }()
	if err := ask(ctx, worker); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-ended, <-ended)
	// Output:
	// [2 4 6]
	// <nil> <nil>
}
