// Package model computes sentence embeddings with a BERT encoder such as
// all-MiniLM-L6-v2, cut into the two halves that attention-FFN disaggregation
// puts on different machines:
//
//	Attention  embeddings, self-attention, layer norms, pooling   (worker)
//	FFNSlice   columns lo..hi of every layer's feed-forward net   (server)
//
// A layer has three steps: Attend, then Partial of every slice on the same activations,
// then Combine. Combine adds the partial sums in slice order, the output bias and the
// residual, and normalises. Activations are float32 [tokens, hidden], row-major. The
// tokens of several sentences follow each other without padding (Batch).
//
// # Same bits everywhere
//
// A split over processes must equal Run in one process bit for bit. So every element of
// every matrix product is one dot product over the whole inner dimension. Its order depends
// only on the length of that dimension:
//
//   - gonum's kernel starts with single elements until its second operand is aligned to 16
//     bytes, so the order of the sum would depend on the address. All weights and scratch
//     lie at 64-byte boundaries (aligned.go), and Config demands dimensions that keep
//     every row aligned.
//   - gonum cuts products of four or more 64x64 blocks along the inner dimension, and
//     computes them in goroutines. The model computes products in panels below that size
//     (matrix.go): no goroutines, no allocation, one order of summation.
//
// So a token's row does not depend on the other sentences in its batch either. Bits may
// differ between processor architectures.
//
// # Concurrency and memory
//
// Attention and FFNSlice are immutable once loaded, and goroutines may share them. One
// goroutine at a time may use a Scratch. Methods write into the caller's memory and
// allocate nothing. Slices of wrong length are a programming mistake and panic, as in
// copy and in gonum.
package model
