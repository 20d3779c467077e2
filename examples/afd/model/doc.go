// Package model computes sentence embeddings with a BERT encoder such as
// all-MiniLM-L6-v2, cut into the two halves that attention-FFN disaggregation
// puts on different machines:
//
//	Attention  embeddings, self-attention, layer norms, pooling   (worker)
//	FFNSlice   columns lo..hi of every layer's feed-forward net   (server)
//
// One layer is: Attend, then Partial of every slice on the same activations, then
// Combine, which adds the partial sums in slice order, the output bias and the
// residual, and normalises. Activations are float32 [tokens, hidden], row-major,
// the tokens of several sentences behind each other without padding (Batch).
//
// # Same bits everywhere
//
// A split run over processes must equal Run in one process bit for bit. So every
// element of every matrix product is one dot product over the whole inner
// dimension, computed in an order that depends on nothing but that length:
//
//   - gonum's kernel starts with single elements until its second operand is
//     aligned to 16 bytes, so the sum's order would follow the address. All
//     weights and scratch lie at 64-byte boundaries (aligned.go), and Config
//     demands dimensions that keep every row aligned.
//   - gonum cuts products of four or more 64x64 blocks along the inner dimension
//     and computes them in goroutines. Products are given to it in panels below
//     that (matrix.go): no goroutines, no allocation, one order of summation.
//
// A token's row therefore does not depend on which other sentences are in its
// batch either. Bits may differ between processor architectures.
//
// # Concurrency and memory
//
// Attention and FFNSlice are immutable once loaded and may be shared by
// goroutines; a Scratch belongs to one goroutine at a time. Methods write into
// the caller's memory and allocate nothing. Slices of wrong length are a
// programming mistake and panic, as in copy and in gonum.
package model
