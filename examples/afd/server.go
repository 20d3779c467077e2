package afd

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// Server is the program of the FFN side.
type Server struct {
	Node      ServerNode
	FFN       *model.FFNSlice
	Workers   int // the number of workers, each of which pushes to every server
	MaxTokens int // of a micro-batch
	InFlight  int // micro-batches of a worker; DefaultInFlight when 0

	// Run calls Progress, if it is set, after each answer with the number so far.
	Progress func(answered int)
}

// Run registers memory for what the workers push, then answers until all workers
// have left (nil) or ctx ends. One goroutine may call it. After an error, answers may
// still be in flight: stop the node before you reuse its memory.
func (s *Server) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	buffer, registration, err := s.register()
	if err != nil {
		return err
	}
	r := responder{server: s, scratch: s.FFN.Scratch(s.MaxTokens), answers: make(map[chunk]*answer)}
	if err := r.serve(ctx); err != nil {
		return err
	}
	if err := registration.Unregister(); err != nil {
		return err
	}
	return errors.Join(free(buffer), r.close(ctx))
}

func (s *Server) inFlight() int {
	if s.InFlight == 0 {
		return DefaultInFlight
	}
	return s.InFlight
}

func (s *Server) check() error {
	switch {
	case s.MaxTokens < 1:
		return fmt.Errorf("afd: MaxTokens is %d; a micro-batch has at least one token", s.MaxTokens)
	case s.Workers < 1:
		return fmt.Errorf("afd: %d workers; a server needs at least one", s.Workers)
	case s.inFlight() < 1 || s.inFlight() > maxSlots:
		return fmt.Errorf("afd: %d micro-batches in flight; 1 to %d are possible", s.inFlight(), maxSlots)
	case s.FFN.Config().Layers > maxLayers:
		return fmt.Errorf("afd: %d layers; a key has room for %d", s.FFN.Config().Layers, maxLayers)
	}
	return nil
}

// register gives every (worker, slot, layer) a chunk of one buffer.
func (s *Server) register() (tensor.Tensor, *ps.ReceiveBuffer, error) {
	var ranks []ps.Rank
	var keys []tensor.Key
	for rank := range ps.Rank(s.Workers) {
		for slot := range s.inFlight() {
			for layer := range s.FFN.Config().Layers {
				ranks = append(ranks, rank)
				keys = append(keys, chunk{layer, slot, rank}.pushKey())
			}
		}
	}
	buffer, err := s.Node.Memory().Empty(tensor.Float32, int64(len(keys)), int64(s.MaxTokens), int64(s.FFN.Config().Hidden))
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	registration, err := s.Node.RegisterRecvBuffer(buffer, ranks, keys)
	return buffer, registration, err
}
