package ps_test

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// A worker pushes three numbers and gets the answer into memory of its own. Until then the key is taken.
func ExampleNode_PushPull() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	numbers, answer := []tensor.Tensor{numbersOf(1, 2, 3)}, []tensor.Tensor{numbersOf(0, 0, 0)}
	h, err := worker.PushPull(numbers, []tensor.Key{1}, answer, []tensor.Key{2})
	check(err)
	_, err = worker.PushPull([]tensor.Tensor{numbersOf(4)}, []tensor.Key{1}, nil, nil)
	fmt.Println(errors.Is(err, stepvan.ErrBusy))

	batch, err := server.GetBatch(c.ctx, ps.LockStep)
	check(err)
	_, err = server.Respond(batch.Requests[0].Pushes(), batch.Requests[0].ID)
	check(err)

	check(h.Wait(c.ctx))
	fmt.Println(floats(answer[0]))
	// Output:
	// true
	// [1 2 3]
}

// A worker pushes to one server by name, and pulls an answer whose length the server decides.
func ExampleNode_Do() {
	c := startLocal(1, 2, func(s *ps.Settings) { s.Routing, s.Batch = ps.Named, "any" })
	defer c.stop()
	answer := numbersOf(0, 0, 0, 0)
	h, err := c.workers[0].Do(&ps.Exchange{
		Push: []tensor.Tensor{numbersOf(1, 2)}, PushKeys: []tensor.Key{1}, PushTo: []ps.Rank{1},
		Pull: []tensor.Tensor{answer}, PullKeys: []tensor.Key{2}, PullTo: []ps.Rank{1}, Variable: []bool{true},
		Label: "layer 1",
	})
	check(err)

	batch, err := c.servers[1].GetBatch(c.ctx, ps.AnyReady)
	check(err)
	_, err = c.servers[1].Respond([]tensor.Tensor{numbersOf(7, 8, 9)}, batch.Requests[0].ID)
	check(err)

	check(h.Wait(c.ctx))
	bytes, err := h.PullLen(0)
	check(err)
	fmt.Println(floats(answer)[:bytes/4])
	// Output: [7 8 9]
}

// In lock-step a batch has one request of every worker.
func ExampleNode_GetBatch_lockStep() {
	c := startLocal(2, 1, nil)
	defer c.stop()
	a, b := push(c.workers[0], 1, 10), push(c.workers[1], 1, 20)

	batch, err := c.servers[0].GetBatch(c.ctx, ps.LockStep)
	check(err)
	for _, r := range batch.Requests {
		fmt.Println("worker", r.Worker, "pushed", floats(r.Pushes()[0]))
		_, err := c.servers[0].Respond(nil, r.ID) // a request without pulls is answered, too
		check(err)
	}
	check(a.Wait(c.ctx))
	check(b.Wait(c.ctx))
	// Output:
	// worker 0 pushed [10]
	// worker 1 pushed [20]
}

// With AnyReady a batch has the requests that are there, and no worker waits for another.
func ExampleNode_GetBatch_anyReady() {
	c := startLocal(2, 1, func(s *ps.Settings) { s.Batch = "any" })
	defer c.stop()
	h := push(c.workers[1], 1, 20)

	batch, err := c.servers[0].GetBatch(c.ctx, ps.AnyReady)
	check(err)
	for _, r := range batch.Requests {
		fmt.Println("worker", r.Worker, "pushed", floats(r.Pushes()[0]))
		_, err := c.servers[0].Respond(nil, r.ID)
		check(err)
	}
	check(h.Wait(c.ctx))
	// Output: worker 1 pushed [20]
}

// AtLeast waits for requests of some of the workers: here of two of three.
func ExampleNode_GetBatch_atLeast() {
	c := startLocal(3, 1, func(s *ps.Settings) { s.Batch = "any" })
	defer c.stop()
	a, b := push(c.workers[0], 1, 10), push(c.workers[2], 1, 30)

	batch, err := c.servers[0].GetBatch(c.ctx, ps.AtLeast(2))
	check(err)
	for _, r := range batch.Requests {
		fmt.Println("worker", r.Worker, "pushed", floats(r.Pushes()[0]))
		_, err := c.servers[0].Respond(nil, r.ID)
		check(err)
	}
	check(a.Wait(c.ctx))
	check(b.Wait(c.ctx))
	// Output:
	// worker 0 pushed [10]
	// worker 2 pushed [30]
}

// Without a policy of its own GetBatch takes that of the settings, STEPVAN_BATCH.
func ExampleNode_GetBatch_default() {
	c := startLocal(2, 1, func(s *ps.Settings) { s.Batch = "any" })
	defer c.stop()
	h := push(c.workers[0], 1, 10)

	batch, err := c.servers[0].GetBatch(c.ctx, ps.DefaultPolicy)
	check(err)
	fmt.Println(len(batch.Requests), "request of worker", batch.Requests[0].Worker)
	_, err = c.servers[0].Respond(nil, batch.Requests[0].ID)
	check(err)
	check(h.Wait(c.ctx))
	// Output: 1 request of worker 0
}

// A server answers each request once. It may change the tensors of its answer when the worker has received them.
func ExampleNode_Respond() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	answer := numbersOf(0)
	h, err := worker.PushPull(nil, nil, []tensor.Tensor{answer}, []tensor.Key{2})
	check(err)

	batch, err := server.GetBatch(c.ctx, ps.LockStep)
	check(err)
	result := []tensor.Tensor{numbersOf(7)}
	response, err := server.Respond(result, batch.Requests[0].ID)
	check(err)
	_, err = server.Respond(result, batch.Requests[0].ID)
	fmt.Println(errors.Is(err, stepvan.ErrStale))

	check(h.Wait(c.ctx))
	check(response.Wait(c.ctx))
	floats(result[0])[0] = 8
	fmt.Println(floats(answer))
	// Output:
	// true
	// [7]
}

// RespondCopy gives the tensors back at once, and says when it could not.
func ExampleNode_RespondCopy() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	answer := numbersOf(0)
	h, err := worker.PushPull(nil, nil, []tensor.Tensor{answer}, []tensor.Key{2})
	check(err)

	batch, err := server.GetBatch(c.ctx, ps.LockStep)
	check(err)
	result := numbersOf(7)
	response, borrowed, err := server.RespondCopy([]tensor.Tensor{result}, batch.Requests[0].ID)
	check(err)
	if borrowed { // memory was short
		check(response.Wait(c.ctx))
	}
	floats(result)[0] = 8

	check(h.Wait(c.ctx))
	fmt.Println(floats(answer))
	// Output: [7]
}

// One result is cut along its first dimension: each worker gets as many rows as its pushed tensor has.
func ExampleNode_RespondVec() {
	c := startLocal(2, 1, nil)
	defer c.stop()
	ask := func(worker *ps.Node, numbers ...float32) (ps.Handle, tensor.Tensor) {
		answer := numbersOf(make([]float32, len(numbers))...)
		h, err := worker.PushPull([]tensor.Tensor{numbersOf(numbers...)}, []tensor.Key{1}, []tensor.Tensor{answer}, []tensor.Key{2})
		check(err)
		return h, answer
	}
	a, answerA := ask(c.workers[0], 1, 2)
	b, answerB := ask(c.workers[1], 3)

	batch, err := c.servers[0].GetBatch(c.ctx, ps.LockStep)
	check(err)
	var all []float32
	var like []tensor.Tensor
	var ids []ps.RequestID
	for _, r := range batch.Requests {
		all = append(all, floats(r.Pushes()[0])...)
		like, ids = append(like, r.Pushes()[0]), append(ids, r.ID)
	}
	for i := range all {
		all[i] *= 10
	}
	_, err = c.servers[0].RespondVec(numbersOf(all...), like, ids)
	check(err)

	check(a.Wait(c.ctx))
	check(b.Wait(c.ctx))
	fmt.Println(floats(answerA), floats(answerB))
	// Output: [10 20] [30]
}

// The pushes of two workers arrive in one tensor of the server, beside each other.
func ExampleNode_RegisterRecvBuffer() {
	c := startLocal(2, 1, nil)
	defer c.stop()
	server := c.servers[0]
	buffer, err := server.Memory().Zeros(tensor.Float32, 32) // 16 numbers of each worker
	check(err)
	registered, err := server.RegisterRecvBuffer(buffer, []ps.Rank{0, 1}, []tensor.Key{1, 1})
	var pending *ps.PendingError
	if errors.As(err, &pending) { // a worker takes long to acknowledge
		registered = pending.Buffer
		err = registered.Wait(c.ctx)
	}
	check(err)

	a := push(c.workers[0], 1, slices.Repeat([]float32{1}, 16)...)
	b := push(c.workers[1], 1, slices.Repeat([]float32{2}, 16)...)
	batch, err := server.GetBatch(c.ctx, ps.LockStep)
	check(err)
	fmt.Println(floats(buffer)[0], floats(buffer)[16])
	for _, r := range batch.Requests {
		_, err := server.Respond(nil, r.ID) // from here the next pushes may arrive
		check(err)
	}
	check(a.Wait(c.ctx))
	check(b.Wait(c.ctx))
	check(registered.Unregister())
	// Output: 1 2
}

// A tensor that a worker pushes again and again is prepared once.
func ExampleWorker_Register() {
	c := startLocal(1, 1, func(s *ps.Settings) { s.Batch = "any" })
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	weights, err := worker.Memory().Zeros(tensor.Float32, 1024)
	check(err)
	registration, err := worker.Worker().Register(weights)
	check(err)
	for range 2 {
		h, err := worker.PushPull([]tensor.Tensor{weights}, []tensor.Key{1}, nil, nil)
		check(err)
		batch, err := server.GetBatch(c.ctx, ps.AnyReady)
		check(err)
		_, err = server.Respond(nil, batch.Requests[0].ID)
		check(err)
		check(h.Wait(c.ctx))
	}
	check(registration.Close())
	fmt.Println("pushed twice")
	// Output: pushed twice
}

// A tensor that a server answers with again and again is prepared once.
func ExampleServer_Register() {
	c := startLocal(1, 1, func(s *ps.Settings) { s.Batch = "any" })
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	weights, err := tensor.FromSlice([]float32{1, 2, 3})
	check(err)
	registration, err := server.Server().Register(weights)
	check(err)
	for range 2 {
		pull, err := worker.Memory().Zeros(tensor.Float32, 3)
		check(err)
		h, err := worker.PushPull(nil, nil, []tensor.Tensor{pull}, []tensor.Key{1})
		check(err)
		batch, err := server.GetBatch(c.ctx, ps.AnyReady)
		check(err)
		_, err = server.Respond([]tensor.Tensor{weights}, batch.Requests[0].ID)
		check(err)
		check(h.Wait(c.ctx))
		fmt.Println(floats(pull))
	}
	check(registration.Close())
	// Output:
	// [1 2 3]
	// [1 2 3]
}

// No instance passes the barrier before all have come.
func ExampleNode_Barrier() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	passed := make(chan error)
	go func() { passed <- c.workers[0].Barrier(c.ctx, ps.Servers|ps.Workers, true) }()
	check(c.servers[0].Barrier(c.ctx, ps.Servers|ps.Workers, true))
	check(<-passed)
	fmt.Println("both are here")
	// Output: both are here
}

// The server hears that its workers have stopped. Operations after Stop return ErrClosed, too.
func ExampleNode_Stop() {
	c := startLocal(1, 1, nil)
	worker, server := c.workers[0], c.servers[0]
	stopped := make(chan error)
	go func() { stopped <- worker.Stop(c.ctx) }()

	_, err := server.GetBatch(c.ctx, ps.LockStep)
	fmt.Println(errors.Is(err, stepvan.ErrClosed))
	check(server.Stop(c.ctx))
	check(<-stopped)
	check(c.scheduler.Stop(c.ctx))
	_, err = worker.PushPull(nil, nil, nil, nil)
	fmt.Println(errors.Is(err, stepvan.ErrClosed))
	// Output:
	// true
	// true
}

// The worker learns which instance died: a server that ends without Stop.
func ExampleNode_Err() {
	c := startLocal(1, 1, nil)
	worker, server := c.workers[0], c.servers[0]
	h := push(worker, 1, 10)
	check(server.Close())

	fmt.Println(errors.Is(h.Wait(c.ctx), stepvan.ErrPeerLost))
	<-worker.Done() // the cluster cannot work without it
	var lost *stepvan.OpError
	if errors.As(worker.Err(), &lost) {
		fmt.Println(lost.Peer)
	}
	fmt.Println(errors.Is(worker.Stop(c.ctx), stepvan.ErrPeerLost))
	check(c.scheduler.Stop(c.ctx)) // its log has the death
	// Output:
	// true
	// server 0
	// true
}

// A worker lists its servers, and a server its workers.
func ExampleNode_Peers() {
	c := startLocal(2, 1, nil)
	defer c.stop()
	for _, peer := range c.servers[0].Peers() {
		if peer.Role == ps.RoleWorker {
			fmt.Println(peer.Name())
		}
	}
	// Output:
	// worker 0
	// worker 1
}

// The server computes in the memory of the worker. In shows what the worker pushed, Out is where it wants the answer,
// and a Respond with Out sends no bytes. That needs tensors of Node.Memory and pushes above 4 KiB. The same program
// works between machines: then the tensors are copies.
func ExampleRequest_out() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	worker, server := c.workers[0], c.servers[0]
	question, err := worker.Memory().Zeros(tensor.Float32, 4096)
	check(err)
	answer, err := worker.Memory().Zeros(tensor.Float32, 4096)
	check(err)
	floats(question)[4095] = 2.5
	h, err := worker.PushPull([]tensor.Tensor{question}, []tensor.Key{1}, []tensor.Tensor{answer}, []tensor.Key{2})
	check(err)

	batch, err := server.GetBatch(c.ctx, ps.LockStep)
	check(err)
	request := batch.Requests[0]
	in, err := request.In(0) // only to be read
	check(err)
	out, err := request.Out(0)
	check(err)
	x, y := floats(in), floats(out)
	for i := range y {
		y[i] = 2 * x[i]
	}
	_, err = server.Respond([]tensor.Tensor{out}, request.ID) // in and out end here
	check(err)

	check(h.Wait(c.ctx))
	fmt.Println(floats(answer)[4095])
	// Output: 5
}

// The time stamps of the last exchanges, for https://ui.perfetto.dev.
func ExampleNode_Trace() {
	c := startLocal(1, 1, nil)
	defer c.stop()
	h := push(c.workers[0], 1, 10)
	batch, err := c.servers[0].GetBatch(c.ctx, ps.LockStep)
	check(err)
	_, err = c.servers[0].Respond(nil, batch.Requests[0].ID)
	check(err)
	check(h.Wait(c.ctx))

	file, err := os.CreateTemp("", "trace-*.json")
	check(err)
	defer os.Remove(file.Name())
	check(trace.WriteJSON(file, []trace.Process{{Name: "worker 0", Entries: c.workers[0].Trace()}}))
	check(file.Close())
	fmt.Println(len(c.workers[0].Trace()), "exchange")
	// Output: 1 exchange
}

// A program posts where it is to be found, and another one waits for that.
func ExampleNode_Board() {
	c := startLocal(1, 1, nil)
	defer c.stop()

	check(c.workers[0].Board().Post(c.ctx, "trainer/0", []byte("ready")))

	trainers, err := c.servers[0].Board().Watch(c.ctx, "trainer/", func(all []ps.Entry) bool { return len(all) == 1 })
	check(err)
	for _, e := range trainers {
		fmt.Printf("%s: %s, says %s\n", e.Key, e.Value, e.Owner.Name())
	}
	// Output: trainer/0: ready, says worker 0
}
