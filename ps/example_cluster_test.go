package ps_test

import (
	"context"
	"log"
	"time"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// local is a cluster in this process, for the examples.
type local struct {
	ctx              context.Context
	scheduler        *ps.Node
	workers, servers []*ps.Node
	stop             func() // waits until all have left
}

// startLocal starts workers and servers in this process. edit changes the settings of all nodes.
func startLocal(workers, servers int, edit func(*ps.Settings)) *local {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var settings []ps.Settings
	add := func(role ps.Role, n int) {
		for range n {
			s := ps.DefaultSettings()
			s.Role, s.NumWorker, s.NumServer, s.RootURI, s.LogLevel = role, workers, servers, "127.0.0.1", "off"
			if edit != nil {
				edit(&s)
			}
			settings = append(settings, s)
		}
	}
	add(ps.RoleScheduler, 1)
	add(ps.RoleServer, servers)
	add(ps.RoleWorker, workers)
	nodes, err := ps.StartAll(ctx, settings)
	check(err)
	c := &local{ctx: ctx, scheduler: nodes[0], workers: make([]*ps.Node, workers), servers: make([]*ps.Node, servers)}
	for _, n := range nodes[1:] {
		if n.Role() == ps.RoleServer {
			c.servers[n.Rank()] = n
		} else {
			c.workers[n.Rank()] = n
		}
	}
	c.stop = func() {
		defer cancel()
		ended := make(chan error)
		for _, n := range nodes {
			go func() { ended <- n.Stop(ctx) }()
		}
		for range nodes {
			check(<-ended)
		}
	}
	return c
}

// push sends numbers under a key, and returns their handle.
func push(worker *ps.Node, key tensor.Key, numbers ...float32) ps.Handle {
	h, err := worker.PushPull([]tensor.Tensor{numbersOf(numbers...)}, []tensor.Key{key}, nil, nil)
	check(err)
	return h
}

// numbersOf is a tensor.
func numbersOf(numbers ...float32) tensor.Tensor {
	t, err := tensor.FromSlice(numbers)
	check(err)
	return t
}

// floats shows the numbers of a tensor.
func floats(t tensor.Tensor) []float32 {
	x, err := tensor.As[float32](t)
	check(err)
	return x
}

// check ends the example.
func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
