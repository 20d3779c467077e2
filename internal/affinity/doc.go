// Package affinity places threads on cores, and memory near them.
//
// Set is a set of cores in the notation of the kernel ("0-3,8"). Layout says which cores
// belong to an accelerator. Pin binds the calling thread, Claim all threads of the
// process; Near has what a function allocates lie on given NUMA nodes. Topology and quota are read from
// /sys, /proc and the control groups.
//
// Threads: none. Everything may be called concurrently. Claims are kept for the process, which its nodes
// share; nothing else outlives a call.
//
// Go moves goroutines between threads: Pin is of use only between runtime.LockOSThread and the
// end of the thread.
package affinity
