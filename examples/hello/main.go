package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

func main() {
	ctx := context.Background()
	node, err := ps.StartFromEnv(ctx) // reads DMLC_ROLE and the other settings
	check(err)
	for node.Role() == ps.RoleServer { // a server answers until all workers have left
		batch, err := node.GetBatch(ctx, ps.LockStep) // one request of every worker
		if errors.Is(err, stepvan.ErrClosed) {
			break
		}
		check(err)
		for _, request := range batch.Requests {
			numbers, _ := tensor.As[float32](request.Pushes()[0])
			for i := range numbers {
				numbers[i] *= 2
			}
			_, err := node.Respond(request.Pushes(), request.ID) // the doubled tensors are the answer
			check(err)
		}
	}
	if node.Role() == ps.RoleWorker {
		question, answer := []float32{1, 2, 3, float32(node.Rank())}, make([]float32, 4)
		push, _ := tensor.FromSlice(question)
		pull, _ := tensor.FromSlice(answer)
		h, err := node.PushPull([]tensor.Tensor{push}, []tensor.Key{1}, []tensor.Tensor{pull}, []tensor.Key{2})
		check(err)
		check(h.Wait(ctx))
		fmt.Println(question, "->", answer)
	}
	check(node.Stop(ctx)) // waits for all other nodes, which is all that the scheduler does here
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
