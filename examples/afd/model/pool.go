package model

import "math"

// Embedding is a sentence's vector of unit length.
type Embedding []float32

// Pool gives the embeddings of a batch from its last activations: the mean over
// each sentence's tokens, scaled to length 1. It is the only step that allocates,
// because the embeddings outlive the batch.
func (a *Attention) Pool(b Batch, x []float32) []Embedding {
	h := a.cfg.Hidden
	out := make([]Embedding, b.Sentences())
	for i := range out {
		lo, hi := b.bounds(i)
		out[i] = meanNormalised(x[lo*h:hi*h], h)
	}
	return out
}

// meanNormalised divides by the length or, as torch does, by 1e-12 if that is more.
func meanNormalised(x []float32, h int) Embedding {
	sum := make([]float64, h)
	for r := 0; r < len(x); r += h {
		for i := range sum {
			sum[i] += float64(x[r+i])
		}
	}
	rows, square := float64(len(x)/h), 0.0
	for i := range sum {
		sum[i] /= rows
		square += sum[i] * sum[i]
	}
	length := max(math.Sqrt(square), 1e-12)
	e := make(Embedding, h)
	for i := range e {
		e[i] = float32(sum[i] / length)
	}
	return e
}
