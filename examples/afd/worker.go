package afd

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
)

// DefaultInFlight is the number of micro-batches of a worker that are under way at
// a time: one at the servers, one on its way, one in attention.
const DefaultInFlight = 3

// Worker is the attention side's program. H is its node's type of handles. Its
// exchanges have the labels "layer 0", "layer 1" and so on in traces.
type Worker[H Handle] struct {
	Exchange  Exchange[H]
	Memory    Memory
	Attention *model.Attention
	Rank      stepvan.Rank
	Servers   int // how many answer each push
	InFlight  int // DefaultInFlight when 0; the servers' must be the same

	// Progress, if set, is called after each micro-batch with the number that are
	// done and their total.
	Progress func(done, total int)
}

// Run computes the embeddings of all sentences in batches, in order. It belongs to
// one goroutine. After an error, exchanges may still be under way: stop the node
// before its memory is given away.
func (w *Worker[H]) Run(ctx context.Context, batches []model.Batch) ([]model.Embedding, error) {
	if err := w.check(batches); err != nil {
		return nil, err
	}
	slots, err := w.newSlots(batches)
	if err != nil {
		return nil, err
	}
	p := pipeline[H]{worker: w, batches: batches, results: make([][]model.Embedding, len(batches))}
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

func (w *Worker[H]) inFlight() int {
	if w.InFlight == 0 {
		return DefaultInFlight
	}
	return w.InFlight
}

func (w *Worker[H]) check(batches []model.Batch) error {
	layers := w.Attention.Config().Layers
	switch {
	case layers > maxLayers:
		return fmt.Errorf("afd: %d layers; a key has room for %d", layers, maxLayers)
	case w.inFlight() < 1 || w.inFlight() > maxSlots:
		return fmt.Errorf("afd: %d micro-batches in flight; 1 to %d are possible", w.inFlight(), maxSlots)
	case w.Servers < 1 || w.Servers > maxServers:
		return fmt.Errorf("afd: %d servers; 1 to %d are possible", w.Servers, maxServers)
	case w.Rank < 0 || w.Rank >= maxRanks:
		return fmt.Errorf("afd: rank %d; a key has room for 0 to %d", w.Rank, maxRanks-1)
	}
	for i, b := range batches {
		if err := w.Attention.Check(b); err != nil {
			return fmt.Errorf("micro-batch %d: %w", i, err)
		}
	}
	return nil
}

func (w *Worker[H]) newSlots(batches []model.Batch) ([]*slot[H], error) {
	tokens := 0
	for _, b := range batches {
		tokens = max(tokens, b.Tokens())
	}
	var slots []*slot[H]
	for i := range min(w.inFlight(), len(batches)) {
		s, err := newSlot(w, i, tokens)
		if err != nil {
			return nil, err
		}
		slots = append(slots, s)
	}
	return slots, nil
}
