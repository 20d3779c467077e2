package afd

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/tensor"
)

// Server is the FFN side's program. R and H are its node's types of requests and
// handles.
type Server[R Request, H Handle] struct {
	Inbox     Inbox[R, H]
	Memory    Memory
	FFN       *model.FFNSlice
	Workers   []stepvan.Rank // ranks of the workers that push to this server
	MaxTokens int            // of a micro-batch
	InFlight  int            // micro-batches of a worker; DefaultInFlight when 0

	// Progress, if set, is called after each answer with the number so far.
	Progress func(answered int)
}

// Run registers memory for what the workers push, then answers until all workers
// have left (nil) or ctx ends. It belongs to one goroutine. After an error, answers
// may still be under way: stop the node before its memory is given away.
func (s *Server[R, H]) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	buffer, registration, err := s.register()
	if err != nil {
		return err
	}
	d := desk[R, H]{server: s, scratch: s.FFN.Scratch(s.MaxTokens), replies: make(map[place]*reply[H])}
	if err := d.serve(ctx); err != nil {
		return err
	}
	if err := registration.Unregister(); err != nil {
		return err
	}
	return errors.Join(free(buffer), d.close(ctx))
}

func (s *Server[R, H]) inFlight() int {
	if s.InFlight == 0 {
		return DefaultInFlight
	}
	return s.InFlight
}

func (s *Server[R, H]) check() error {
	switch {
	case s.MaxTokens < 1:
		return fmt.Errorf("afd: MaxTokens is %d; a micro-batch has at least one token", s.MaxTokens)
	case len(s.Workers) == 0:
		return errors.New("afd: a server needs the ranks of its workers")
	case s.inFlight() < 1 || s.inFlight() > maxSlots:
		return fmt.Errorf("afd: %d micro-batches in flight; 1 to %d are possible", s.inFlight(), maxSlots)
	case s.FFN.Config().Layers > maxLayers:
		return fmt.Errorf("afd: %d layers; a key has room for %d", s.FFN.Config().Layers, maxLayers)
	}
	return nil
}

// register gives every (worker, slot, layer) a chunk of one buffer.
func (s *Server[R, H]) register() (tensor.Tensor, Registration, error) {
	var ranks []stepvan.Rank
	var keys []tensor.Key
	for _, rank := range s.Workers {
		for slot := range s.inFlight() {
			for layer := range s.FFN.Config().Layers {
				ranks = append(ranks, rank)
				keys = append(keys, place{layer, slot, rank}.pushKey())
			}
		}
	}
	buffer, err := s.Memory.Empty(tensor.Float32, int64(len(keys)), int64(s.MaxTokens), int64(s.FFN.Config().Hidden))
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	registration, err := s.Inbox.RegisterRecvBuffer(buffer, ranks, keys)
	return buffer, registration, err
}
