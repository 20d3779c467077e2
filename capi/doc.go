//go:build cgo

// Command capi is the C interface of stepvan: built with -buildmode=c-shared it is
// libstepvan.so, whose functions stepvan.h declares and documents.
//
// # From C to Go
//
// boundary.c has the functions of stepvan.h. Each refuses forked children, and calls its Go half: goPushPull for
// stepvan_push_pull. boundary.c includes stepvan.h and the prototypes that cgo writes for the Go halves. So the
// compiler reports every difference in a definition, a parameter or a type. exports.map lists the symbols of the
// library; a test compares them with the header.
//
// A Go half turns numbers into values (package numbers). It turns tensors of C into tensors of Go (convert.go), and
// views with strides likewise (view.go). It calls package ps, and turns an error into a code and a text (errors.go).
// Panics end in the Go half (guard), and on goroutines of this package (shielded). A panic in a call on a node ends the
// node (guardNode, ps.Node.Panicked), since it may leave a lock locked. So do panics of the background driver and of
// waits (ps.ContainPanics).
//
// # Memory
//
// C gets addresses of memory files, of its own memory, or of malloc; never of the Go heap. The layers below reach
// foreign memory through a tensor.Window: one per stepvan_wrap, or one per operation for tensors without a number.
// When the last user of the memory has ended, the window ends, and the owner is handed back (lend.go). So a region's
// generation changes with each piece of memory, and memory that was freed and allocated again never counts as the
// old one.
//
// # Storages
//
// Memory of stepvan_wrap is a storage (package internal/storages): its number names no other memory ever. A binding
// wraps the memory of its tensors without an owner, and keeps it with the owners of the operations. So an operation in
// such memory gets a window of its own, which holds the region of the number.
//
// # Threads
//
// Any thread may call any function. Each half runs on its caller's thread. Goroutines run what C waits for in slices
// (start, stop, register, unregister), and notifications.
//
// Budget of push_pull with wait, of get_batch with respond: 0 allocations in the steady state.
package main

func main() {}
