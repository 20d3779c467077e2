//go:build cgo

// Command capi is the C interface of stepvan: built with -buildmode=c-shared it is
// libstepvan.so, whose functions stepvan.h declares and documents.
//
// # From C to Go
//
// A function of stepvan.h is in boundary.c, which refuses forked children and
// calls its Go half, of the same name with go in front. The compiler holds
// the three together: boundary.c includes stepvan.h and the prototypes that cgo writes
// of the Go halves, and another definition, parameter or type is its error.
// exports.map says what the library shows; a test compares that with the header.
//
// A Go half turns numbers into values (package slots), tensors of C into tensors of Go
// (convert.go), calls package ps, and turns an error into a code and a text
// (errors.go). Panics end there (guard), and on goroutines of this package (shielded), and those of a call on a node end the node
// (guardNode, ps.Node.Panicked), as panics of the driver and of waits do (ps.ContainPanics): a lock may be left behind.
//
// # Memory
//
// C gets addresses of memory files, of its own memory, or of malloc; never of the Go heap.
// Foreign memory is shown to the layers below through a tensor.Window: once per stepvan_wrap, or
// per operation for tensors without a number. The window's end tells when nobody
// uses the memory any more, and then its owner is handed back (lend.go). So a region's
// generation changes with each piece of memory, and memory that was freed and allocated
// again is never taken for the old one.
//
// # Threads
//
// Everything may be called from any thread. Each half runs on its caller's thread; goroutines
// are started for what C waits for in slices (start, stop, register, unregister) and
// for notifications.
//
// Budget of push_pull with wait, of get_batch with respond: 0 allocations in the steady state.
package main

func main() {}
