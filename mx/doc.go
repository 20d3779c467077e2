// Package mx quantizes matrices to MXFP8 and back, as the OCP specification of microscaling formats has it. An element
// is a float8_e4m3fn. Each [Block] of 32 elements along a row shares a scale, which is a float8_e8m0fnu: a power of
// two. The value of an element is the product.
//
// # Rounding
//
// The scale of a block is the least power of two that brings its largest element to at most 448, the largest
// float8_e4m3fn. Elements are rounded to the nearest, ties to even. So the error of an element is at most the larger of
// a sixteenth of it and 2^-10 of the scale. A block with a NaN or an infinity has a NaN as its scale.
//
// # Scales
//
// Scales of a matrix of M rows and K columns have one of two layouts. As a matrix of M rows and K/32 columns they are
// for programs. As a list they are for tensor cores, in tiles of 128 rows and 4 columns. Zeros fill up the last tiles
// of rows and columns ([SwizzledBytes]).
//
// # Loops
//
// Processors with AVX-512 or AVX2 have loops in assembly. A test compares them bit by bit with those in Go, which say
// what is right. The functions have no threads and keep no memory, so any number of goroutines may call them.
package mx
