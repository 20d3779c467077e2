package afd

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan/examples/afd/model"
)

// DefaultInFlight is how many micro-batches a worker has in flight at a time: one at the servers,
// one on its way, one in attention.
const DefaultInFlight = 3

// Worker is the program of the attention side. In traces its exchanges have the
// labels "layer 0", "layer 1" and so on.
type Worker struct {
	Node      WorkerNode
	Attention *model.Attention
	Servers   int // the number of servers, each of which answers every push
	InFlight  int // DefaultInFlight when 0; servers need the same number

	// Run calls Progress, if it is set, after each micro-batch.
	Progress func(done, total int)
}

// Run computes the embeddings of all sentences in batches, in order. One goroutine
// may call it. After an error, exchanges may still be in flight: stop the node
// before you reuse its memory.
func (w *Worker) Run(ctx context.Context, batches []model.Batch) ([]model.Embedding, error) {
	if err := w.check(batches); err != nil {
		return nil, err
	}
	slots, err := w.newSlots(batches)
	if err != nil {
		return nil, err
	}
	p := pipeline{worker: w, batches: batches, results: make([][]model.Embedding, len(batches))}
	if err := p.run(ctx, slots); err != nil {
		return nil, err
	}
	var all []model.Embedding
	for _, r := range p.results {
		all = append(all, r...)
	}
	for _, s := range slots {
		if err := free(s.memory...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (w *Worker) inFlight() int {
	if w.InFlight == 0 {
		return DefaultInFlight
	}
	return w.InFlight
}

func (w *Worker) check(batches []model.Batch) error {
	layers := w.Attention.Config().Layers
	switch {
	case layers > maxLayers:
		return fmt.Errorf("afd: %d layers; a key has room for %d", layers, maxLayers)
	case w.inFlight() < 1 || w.inFlight() > maxSlots:
		return fmt.Errorf("afd: %d micro-batches in flight; 1 to %d are possible", w.inFlight(), maxSlots)
	case w.Servers < 1 || w.Servers > maxServers:
		return fmt.Errorf("afd: %d servers; 1 to %d are possible", w.Servers, maxServers)
	case w.Node.Rank() < 0 || w.Node.Rank() >= maxRanks:
		return fmt.Errorf("afd: rank %d; a key has room for 0 to %d", w.Node.Rank(), maxRanks-1)
	}
	for i, b := range batches {
		if err := w.Attention.Check(b); err != nil {
			return fmt.Errorf("micro-batch %d: %w", i, err)
		}
	}
	return nil
}

func (w *Worker) newSlots(batches []model.Batch) ([]*slot, error) {
	tokens := 0
	for _, b := range batches {
		tokens = max(tokens, b.Tokens())
	}
	var slots []*slot
	for i := range min(w.inFlight(), len(batches)) {
		s, err := newSlot(w, i, tokens)
		if err != nil {
			return nil, err
		}
		slots = append(slots, s)
	}
	return slots, nil
}
