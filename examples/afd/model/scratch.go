package model

// Scratch is the working memory of Attention and FFNSlice for batches of up to a
// number of tokens. It belongs to one goroutine at a time.
type Scratch struct {
	maxTokens   int
	projections []float32 // [tokens, 3*hidden]: query, key, value
	context     []float32 // [tokens, hidden]
	scores      []float32 // [tokens of a sentence, the same]
	inner       []float32 // [tokens, columns of the slice]
}

// Scratch makes working memory for batches of up to maxTokens tokens.
func (a *Attention) Scratch(maxTokens int) *Scratch {
	longest := min(maxTokens, a.cfg.Positions)
	return &Scratch{
		maxTokens:   maxTokens,
		projections: alignedFloats(maxTokens * 3 * a.cfg.Hidden),
		context:     alignedFloats(maxTokens * a.cfg.Hidden),
		scores:      alignedFloats(longest * longest),
	}
}

// Scratch makes working memory for activations of up to maxTokens tokens.
func (f *FFNSlice) Scratch(maxTokens int) *Scratch {
	return &Scratch{maxTokens: maxTokens, inner: alignedFloats(maxTokens * (f.hi - f.lo))}
}
