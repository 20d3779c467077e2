// Package limit measures the least time of an exchange: it moves the same bytes without
// stepvan between the program and the kernel.
//
// A Caller sends bytes to one or several Answerers, and waits until each has sent its own
// back. There are six kinds:
//
//   - Socket and UnixSocket: non-blocking send and recv in tight loops, without a poller or
//     frames; the bytes are read into one buffer
//   - Netpoll and UnixNetpoll: Read and Write of package net, which park the goroutine
//   - Memory: both sides copy from their own memory into a file that both have mapped.
//     Then they raise an atomic number on which the other side spins. Without bytes to
//     copy only the number remains
//   - Perftest: the programs of package perftest say what the bytes cost over RDMA, one way
//     and the other. The answerer only names its address
//
// With Spec.Work the sides also do what programs do besides exchanging: see package work.
//
// A Refit is one process of a bare resharding: see package refit.
//
// A Copier measures a copy of the same bytes within one thread.
//
// # Threads and memory
//
// One goroutine at a time may use a Caller or an Answerer. Both allocate all memory when
// they are made, and write to it once. Pages that were never written are all the same
// page of zeros, which is faster to read than memory.
package limit
