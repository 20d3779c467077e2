package model

import (
	"cmp"
	"slices"
)

// Match is a sentence that resembles a query.
type Match struct {
	Index  int     // into the embeddings that were searched
	Cosine float32 // 1 for the same direction
}

// Nearest finds the k embeddings of corpus with the largest cosine to query,
// best first; equal ones in the corpus's order. Embeddings have unit length, so
// the cosine is the dot product.
func Nearest(corpus []Embedding, query Embedding, k int) []Match {
	matches := make([]Match, len(corpus))
	for i, e := range corpus {
		matches[i] = Match{i, float32(Cosine(e, query))}
	}
	slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(b.Cosine, a.Cosine) })
	return matches[:max(0, min(k, len(matches)))]
}

// Cosine is the dot product of two embeddings of unit length.
func Cosine(a, b Embedding) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}
