// Package safetensors reads tensors from files in the safetensors format: eight
// bytes of little-endian header length, a JSON header that gives each tensor's
// dtype, shape and place, and the flat data.
//
// Files come from elsewhere, so nothing in them is trusted: New checks lengths,
// offsets, overlaps, holes, dtypes and shapes before any tensor is read, and
// allocates no more than the header takes. Mistakes are *FormatError values.
//
// A File may be read by several goroutines at once. It holds the header only;
// tensors are read from the source when asked for, into the caller's memory.
package safetensors
