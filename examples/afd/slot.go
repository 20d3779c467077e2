package afd

import (
	"context"

	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/tensor"
)

// slot is one place in a worker's pipeline with the memory of a micro-batch:
// activations that are pushed, and one partial sum per server that is pulled.
type slot[H Handle] struct {
	worker      *Worker[H]
	index       int
	scratch     *model.Scratch
	memory      []tensor.Tensor // whole: activations, then partial sums
	activations []tensor.Tensor // the batch's rows of the first
	pulls       []tensor.Tensor // and of the others
	pushKey     []tensor.Key
	pullKeys    []tensor.Key
	x           []float32   // activations[0] as floats
	partials    [][]float32 // pulls as floats

	idle   bool
	batch  int // index
	input  model.Batch
	layer  int // whose exchange is under way, or comes next
	handle H
}

func newSlot[H Handle](w *Worker[H], index, tokens int) (*slot[H], error) {
	s := &slot[H]{
		worker: w, index: index, scratch: w.Attention.Scratch(tokens),
		activations: make([]tensor.Tensor, 1), pulls: make([]tensor.Tensor, w.Servers),
		pushKey: make([]tensor.Key, 1), pullKeys: make([]tensor.Key, w.Servers),
		partials: make([][]float32, w.Servers),
	}
	for range 1 + w.Servers {
		t, err := w.Memory.Empty(tensor.Float32, int64(tokens), int64(w.Attention.Config().Hidden))
		if err != nil {
			return nil, err
		}
		s.memory = append(s.memory, t)
	}
	return s, nil
}

// close gives the memory back; no exchange may be under way.
func (s *slot[H]) close() error {
	for _, t := range s.memory {
		if r := t.Region(); r != nil {
			if err := r.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// load takes batch number index in and computes its input activations.
func (s *slot[H]) load(index int, b model.Batch) error {
	s.batch, s.input, s.layer = index, b, 0
	var err error
	if s.activations[0], s.x, err = rows(s.memory[0], b.Tokens()); err != nil {
		return err
	}
	for i := range s.pulls {
		if s.pulls[i], s.partials[i], err = rows(s.memory[1+i], b.Tokens()); err != nil {
			return err
		}
	}
	s.worker.Attention.Embed(b, s.x)
	return nil
}

// rows gives the first n rows of t, as tensor and as floats.
func rows(t tensor.Tensor, n int) (tensor.Tensor, []float32, error) {
	t, err := t.Slice(0, int64(n))
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	f, err := tensor.As[float32](t)
	return t, f, err
}

// push computes the attention of the layer and sends it to the servers.
func (s *slot[H]) push() error {
	w := s.worker
	w.Attention.Attend(s.layer, s.input, s.x, s.scratch)
	at := place{layer: s.layer, slot: s.index, rank: w.Rank}
	s.pushKey[0] = at.pushKey()
	for i := range s.pullKeys {
		s.pullKeys[i] = at.pullKey(i)
	}
	var err error
	s.handle, err = w.Exchange.PushPull(s.activations, s.pushKey, s.pulls, s.pullKeys)
	return err
}

// pull waits for the partial sums and ends the layer with them.
func (s *slot[H]) pull(ctx context.Context) error {
	w := s.worker
	if err := s.handle.Wait(ctx); err != nil {
		return err
	}
	if w.Observe != nil {
		w.Observe(s.layer, s.handle)
	}
	w.Attention.Combine(s.layer, s.x, s.partials)
	s.layer++
	return nil
}

func (s *slot[H]) pool() []model.Embedding { return s.worker.Attention.Pool(s.input, s.x) }
