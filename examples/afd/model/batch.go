package model

import "fmt"

// Batch is a micro-batch: the tokens of several sentences behind each other.
type Batch struct {
	IDs  []int32
	Ends []int // sentence i is IDs[Ends[i-1]:Ends[i]]
}

// Tokens is the number of rows of the batch's activations.
func (b Batch) Tokens() int { return len(b.IDs) }

// Sentences is the number of embeddings that the batch gives.
func (b Batch) Sentences() int { return len(b.Ends) }

// bounds gives the rows [lo, hi) of sentence i.
func (b Batch) bounds(i int) (lo, hi int) {
	if i > 0 {
		lo = b.Ends[i-1]
	}
	return lo, b.Ends[i]
}

// Pack puts sentences into batches of at most maxTokens tokens, in order. A
// batch never splits a sentence, so a sentence must fit.
func Pack(sentences [][]int32, maxTokens int) ([]Batch, error) {
	var batches []Batch
	var open Batch
	for i, ids := range sentences {
		if len(ids) == 0 || len(ids) > maxTokens {
			return nil, fmt.Errorf("model: sentence %d has %d tokens; a batch holds 1 to %d", i, len(ids), maxTokens)
		}
		if open.Tokens()+len(ids) > maxTokens {
			batches, open = append(batches, open), Batch{}
		}
		open.IDs = append(open.IDs, ids...)
		open.Ends = append(open.Ends, len(open.IDs))
	}
	if open.Tokens() > 0 {
		batches = append(batches, open)
	}
	return batches, nil
}
