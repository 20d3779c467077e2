package model

import (
	"fmt"
	"math"
)

// Attention is the worker's half: everything but the feed-forward matrices.
type Attention struct {
	cfg                    Config
	words, positions, kind []float32 // [vocabulary, hidden], [positions, hidden], [hidden]
	embedNorm              layerNorm
	layers                 []attentionLayer
}

type attentionLayer struct {
	qkv     linear // query, key and value above each other: [3*hidden, hidden]
	output  linear
	norm    layerNorm
	ffnBias []float32 // the bias of the feed-forward output, added once, by Combine
	ffnNorm layerNorm
}

// Config is the model's configuration.
func (a *Attention) Config() Config { return a.cfg }

// Check says why a batch cannot be computed: ids that the vocabulary has not, or
// sentences that are longer than the model has positions.
func (a *Attention) Check(b Batch) error {
	if b.Sentences() == 0 || b.Ends[len(b.Ends)-1] != b.Tokens() {
		return fmt.Errorf("model: a batch's last sentence must end with its tokens")
	}
	for i := range b.Ends {
		if lo, hi := b.bounds(i); hi <= lo || hi-lo > a.cfg.Positions {
			return fmt.Errorf("model: sentence %d has %d tokens; the model takes 1 to %d", i, hi-lo, a.cfg.Positions)
		}
	}
	for _, id := range b.IDs {
		if id < 0 || int(id) >= a.cfg.Vocabulary {
			return fmt.Errorf("model: token id %d is outside the vocabulary of %d", id, a.cfg.Vocabulary)
		}
	}
	return nil
}

// Embed writes the input activations of a checked batch to x [tokens, hidden].
func (a *Attention) Embed(b Batch, x []float32) {
	h := a.cfg.Hidden
	for i := range b.Ends {
		lo, hi := b.bounds(i)
		for t := lo; t < hi; t++ {
			row := x[t*h : (t+1)*h]
			copy(row, a.words[int(b.IDs[t])*h:])
			addTo(row, a.kind)
			addTo(row, a.positions[(t-lo)*h:])
		}
	}
	a.embedNorm.apply(x[:b.Tokens()*h])
}

// Attend replaces the activations x by LayerNorm(SelfAttention(x) + x) of layer:
// what every FFN slice takes, and the residual that Combine needs again.
func (a *Attention) Attend(layer int, b Batch, x []float32, s *Scratch) {
	l, h, tokens := &a.layers[layer], a.cfg.Hidden, b.Tokens()
	in := dense(x, tokens, h)
	qkv, context := dense(s.projections, tokens, 3*h), dense(s.context, tokens, h)
	l.qkv.apply(qkv, in)
	for i := range b.Ends {
		lo, hi := b.bounds(i)
		a.attendSentence(qkv.view(lo, 0, hi-lo, 3*h), context.view(lo, 0, hi-lo, h), s)
	}
	out := dense(s.projections, tokens, h) // the projections have been used up
	l.output.apply(out, context)
	addTo(in.data, out.data)
	l.norm.apply(in.data)
}

// attendSentence computes softmax(Q Kᵀ / sqrt(d)) V for every head.
func (a *Attention) attendSentence(qkv, context matrix, s *Scratch) {
	n, h, d := qkv.rows, a.cfg.Hidden, a.cfg.headDim()
	scores := dense(s.scores, n, n)
	scale := float32(1 / math.Sqrt(float64(d)))
	for at := 0; at < h; at += d {
		multiplyTransposed(scores, qkv.view(0, at, n, d), qkv.view(0, h+at, n, d), scale)
		for r := range n {
			softmax(scores.data[r*n : (r+1)*n])
		}
		multiply(context.view(0, at, n, d), scores, qkv.view(0, 2*h+at, n, d))
	}
}

// Combine ends a layer: x becomes LayerNorm(x + sum of partials + bias). The partials
// [tokens, hidden] must be in the order of the slices. Combine uses the memory of the
// first for the sum.
func (a *Attention) Combine(layer int, x []float32, partials [][]float32) {
	l, h := &a.layers[layer], a.cfg.Hidden
	sum := partials[0][:len(x)]
	for _, p := range partials[1:] {
		addTo(sum, p)
	}
	for r := 0; r < len(x); r += h {
		addTo(sum[r:r+h], l.ffnBias)
	}
	addTo(x, sum)
	l.ffnNorm.apply(x)
}
