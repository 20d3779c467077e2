package afd

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
)

// pipeline moves a worker's micro-batches through its slots.
type pipeline struct {
	worker  *Worker
	batches []model.Batch
	results [][]model.Embedding
	next    int // the first batch that no slot has taken
	done    int
}

// run fills all slots, then advances them in turn. The exchange of one slot is in
// flight while the worker computes another.
func (p *pipeline) run(ctx context.Context, slots []*slot) error {
	for _, s := range slots {
		if err := p.begin(s); err != nil {
			return s.wrap(err)
		}
	}
	for p.done < len(p.batches) {
		if err := p.round(ctx, slots); err != nil {
			return err
		}
	}
	return nil
}

// round advances every slot by one step. If no slot can move, the node refuses
// requests although this worker has none in flight, so there is nothing to wait for.
func (p *pipeline) round(ctx context.Context, slots []*slot) error {
	moved := false
	for _, s := range slots {
		if s.idle {
			continue
		}
		moved = moved || s.sent // then the step waits
		if err := p.step(ctx, s); err != nil {
			return s.wrap(err)
		}
		moved = moved || s.sent
	}
	if !moved {
		return fmt.Errorf("afd: no micro-batch can be sent: %w", stepvan.ErrWouldBlock)
	}
	return nil
}

// begin gives the slot the next batch. After the last batch it leaves the slot idle.
func (p *pipeline) begin(s *slot) error {
	if p.next == len(p.batches) {
		s.idle = true
		return nil
	}
	if err := s.load(p.next, p.batches[p.next]); err != nil {
		return err
	}
	p.next++
	return s.push()
}

// step ends the slot's layer and begins the next one. A slot that could not send
// before sends instead.
func (p *pipeline) step(ctx context.Context, s *slot) error {
	if !s.sent {
		return s.send()
	}
	if err := s.pull(ctx); err != nil {
		return err
	}
	if s.layer < p.worker.Attention.Config().Layers {
		return s.push()
	}
	p.results[s.batch] = s.pool()
	p.done++
	if p.worker.Progress != nil {
		p.worker.Progress(p.done, len(p.batches))
	}
	return p.begin(s)
}
