package model

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Run computes the embeddings of all sentences of batches in this process, in
// order, with the attention half and the slices of a split. It gives the bits
// that workers and servers of the same split give. Batches are computed side by
// side, on as many cores as there are.
func Run(a *Attention, slices []*FFNSlice, batches []Batch) ([]Embedding, error) {
	if err := checkSplit(a.cfg, slices); err != nil {
		return nil, err
	}
	tokens := 0
	for i, b := range batches {
		if err := a.Check(b); err != nil {
			return nil, fmt.Errorf("batch %d: %w", i, err)
		}
		tokens = max(tokens, b.Tokens())
	}
	results := make([][]Embedding, len(batches))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(batches)) {
		wg.Go(func() {
			r := newRun(a, slices, tokens)
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				results[i] = r.batch(batches[i])
			}
		})
	}
	wg.Wait()
	var all []Embedding
	for _, r := range results {
		all = append(all, r...)
	}
	return all, nil
}

// checkSplit demands slices that cover the intermediate dimension, in order.
func checkSplit(c Config, slices []*FFNSlice) error {
	at := 0
	for i, f := range slices {
		if f.cfg != c {
			return fmt.Errorf("model: slice %d is of another model", i)
		}
		if f.lo != at {
			return fmt.Errorf("model: slice %d begins at column %d instead of %d", i, f.lo, at)
		}
		at = f.hi
	}
	if at != c.Intermediate {
		return fmt.Errorf("model: the slices end at column %d of %d", at, c.Intermediate)
	}
	return nil
}

// run is the memory of one goroutine of Run.
type run struct {
	attention *Attention
	slices    []*FFNSlice
	x         []float32
	partials  [][]float32
	scratch   *Scratch
	inner     []*Scratch
}

func newRun(a *Attention, slices []*FFNSlice, tokens int) *run {
	r := &run{attention: a, slices: slices, x: make([]float32, tokens*a.cfg.Hidden), scratch: a.Scratch(tokens)}
	for _, f := range slices {
		r.partials = append(r.partials, make([]float32, tokens*a.cfg.Hidden))
		r.inner = append(r.inner, f.Scratch(tokens))
	}
	return r
}

func (r *run) batch(b Batch) []Embedding {
	n := b.Tokens() * r.attention.cfg.Hidden
	x := r.x[:n]
	r.attention.Embed(b, x)
	for layer := range r.attention.cfg.Layers {
		r.attention.Attend(layer, b, x, r.scratch)
		for i, f := range r.slices {
			f.Partial(layer, x, r.partials[i][:n], r.inner[i])
		}
		r.attention.Combine(layer, x, r.partials)
	}
	return r.attention.Pool(b, x)
}
