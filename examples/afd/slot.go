package afd

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/examples/afd/model"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// slot holds one micro-batch of a worker's pipeline: the activations that it pushes,
// and one partial sum that it pulls from each server.
type slot struct {
	worker   *Worker
	index    int
	scratch  *model.Scratch
	memory   []tensor.Tensor // whole: activations, then partial sums
	request  ps.Exchange     // the rows of the batch in them
	x        []float32       // the activations as floats
	partials [][]float32     // the partial sums as floats

	idle   bool
	batch  int // index
	input  model.Batch
	layer  int // whose exchange is in flight, or comes next
	sent   bool
	handle ps.Handle // when sent
}

func newSlot(w *Worker, index, tokens int) (*slot, error) {
	s := &slot{
		worker: w, index: index, scratch: w.Attention.Scratch(tokens),
		request: ps.Exchange{
			Push: make([]tensor.Tensor, 1), PushKeys: make([]tensor.Key, 1),
			Pull: make([]tensor.Tensor, w.Servers), PullKeys: make([]tensor.Key, w.Servers),
			Routing: ps.Broadcast,
		},
		partials: make([][]float32, w.Servers),
	}
	for range 1 + w.Servers {
		t, err := w.Node.Memory().Empty(tensor.Float32, int64(tokens), int64(w.Attention.Config().Hidden))
		if err != nil {
			return nil, err
		}
		s.memory = append(s.memory, t)
	}
	return s, nil
}

// load puts a batch into the slot and computes its input activations.
func (s *slot) load(index int, b model.Batch) error {
	s.batch, s.input, s.layer = index, b, 0
	r := &s.request
	var err error
	if r.Push[0], s.x, err = rows(s.memory[0], b.Tokens()); err != nil {
		return err
	}
	for i := range r.Pull {
		if r.Pull[i], s.partials[i], err = rows(s.memory[1+i], b.Tokens()); err != nil {
			return err
		}
	}
	s.worker.Attention.Embed(b, s.x)
	return nil
}

// rows returns the first n rows of t, as a tensor and as floats.
func rows(t tensor.Tensor, n int) (tensor.Tensor, []float32, error) {
	t, err := t.Slice(0, int64(n))
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	f, err := tensor.As[float32](t)
	return t, f, err
}

// push computes the attention of the layer and sends it to the servers.
func (s *slot) push() error {
	w := s.worker
	w.Attention.Attend(s.layer, s.input, s.x, s.scratch)
	at := chunk{layer: s.layer, slot: s.index, rank: w.Node.Rank()}
	s.request.Label = layerLabels[s.layer]
	s.request.PushKeys[0] = at.pushKey()
	for i := range s.request.PullKeys {
		s.request.PullKeys[i] = at.pullKey(i)
	}
	return s.send()
}

// send leaves the slot unsent when the node has no room.
func (s *slot) send() error {
	h, err := s.worker.Node.Do(&s.request)
	if errors.Is(err, stepvan.ErrWouldBlock) {
		s.sent = false
		return nil
	}
	s.handle, s.sent = h, err == nil
	return err
}

// pull waits for the partial sums and adds them to the activations.
func (s *slot) pull(ctx context.Context) error {
	if err := s.handle.Wait(ctx); err != nil {
		return err
	}
	s.worker.Attention.Combine(s.layer, s.x, s.partials)
	s.layer++
	return nil
}

func (s *slot) pool() []model.Embedding { return s.worker.Attention.Pool(s.input, s.x) }

func (s *slot) wrap(err error) error {
	return fmt.Errorf("micro-batch %d, layer %d: %w", s.batch, s.layer, err)
}

// layerLabels name the exchanges in traces. They are made once, because each exchange sets one.
var layerLabels = func() (labels [maxLayers]string) {
	for l := range labels {
		labels[l] = fmt.Sprintf("layer %d", l)
	}
	return labels
}()
