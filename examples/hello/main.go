package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

func main() {
	ctx := context.Background()
	node, err := ps.StartFromEnv(ctx) // who am I? DMLC_ROLE and its kin say
	if err != nil {
		log.Fatal(err)
	}
	if node.Role() == ps.RoleServer {
		err = serve(ctx, node)
	} else {
		err = ask(ctx, node)
	}
	if err := errors.Join(err, node.Stop(ctx)); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, node *ps.Node) error {
	question := []float32{1, 2, 3, float32(node.Rank())}
	answer := make([]float32, 4)
	push, _ := tensor.FromSlice(question)
	pull, _ := tensor.FromSlice(answer)
	h, err := node.PushPull([]tensor.Tensor{push}, []tensor.Key{1}, []tensor.Tensor{pull}, []tensor.Key{2})
	if err != nil {
		return err
	}
	err = h.Wait(ctx)
	fmt.Println(question, "->", answer)
	return err
}

func serve(ctx context.Context, node *ps.Node) error {
	for {
		batch, err := node.GetBatch(ctx, ps.LockStep) // one request from every worker
		if errors.Is(err, ps.ErrClosed) {
			return nil // all workers have left
		} else if err != nil {
			return err
		}
		for _, request := range batch.Requests {
			numbers, _ := tensor.As[float32](request.Pushes()[0])
			for i := range numbers {
				numbers[i] *= 2
			}
			if _, err := node.Respond(request.Pushes(), request.Handler); err != nil {
				return err
			}
		}
	}
}
