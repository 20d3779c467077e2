// Package safetensors reads tensors from files in the safetensors format. A file begins
// with the length of the header, as eight little-endian bytes. A JSON header with the
// dtype, shape and place of each tensor follows, and then the data.
//
// Files may come from anywhere, so the package trusts nothing in them. New checks lengths,
// offsets, overlaps, holes, dtypes and shapes before it reads a tensor, and allocates no
// more than the header takes. Mistakes are *FormatError values.
//
// Several goroutines may read a File at once. It holds only the header. A read of a tensor
// goes from the source straight into the caller's memory.
package safetensors
