package afd

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
)

// pipeline moves a worker's micro-batches through its slots.
type pipeline[H Handle] struct {
	worker  *Worker[H]
	batches []model.Batch
	results [][]model.Embedding
	next    int // the first batch that no slot has taken
	done    int
}

// run fills all slots, then serves them in turn: a slot's exchange is under way
// while the others are waited for and computed.
func (p *pipeline[H]) run(ctx context.Context, slots []*slot[H]) error {
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

// round takes every slot a step further. If none could be, the node refuses
// requests while none of this worker is under way: there is nothing to wait for.
func (p *pipeline[H]) round(ctx context.Context, slots []*slot[H]) error {
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

// begin gives the slot the next batch, or leaves it idle at the end.
func (p *pipeline[H]) begin(s *slot[H]) error {
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

// step ends the slot's layer and begins what comes after it, or sends what could
// not be sent before.
func (p *pipeline[H]) step(ctx context.Context, s *slot[H]) error {
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
