// Package cast converts elements from one type into another while it copies them, and merges them into what the
// destination has.
//
// # Conversions
//
// The types are float64, float32, float16, bfloat16, float8_e4m3fn and float8_e5m2. Elements are rounded to the
// nearest, ties to even, as torch's Tensor.to does it:
//
//   - A value that is too large becomes an infinity, and in float8_e4m3fn, which has none, a NaN.
//   - A NaN stays a NaN and keeps its sign. Torch has other bits of a NaN on other processors, so those may differ.
//   - Subnormal numbers are numbers as others.
//   - From float64 to types below float32 elements go through float32. So they are rounded twice, as in torch.
//
// # Merges
//
// A merge reads the destination, and writes back the sum, product, maximum or minimum. Floats of 16 and 8 bits are
// computed in float32 and rounded once, and in float64 where one side is float64. A NaN on either side gives a NaN.
// Integers wrap around. A sum of booleans is their or, and a product is their and. A mean is a sum and a [Kernel] of
// [NewDivision] behind it.
//
// # Speed
//
// A [Kernel] is chosen once for two types and a merge. It works on runs that are contiguous on both sides. A
// [strided.Walk] brings elements together that are not. On amd64 the kernels of the usual types are in assembly. The
// race detector does not see assembly, so with it the loops in Go do the work.
package cast
