// Package affinity places threads on cores, and memory near them.
//
// Set is a set of cores in the notation of the kernel ("0-3,8"). Layout says which cores
// belong to an accelerator. Pin binds the calling thread, and Claim all threads of the
// process. Near places the memory that a function allocates on given NUMA nodes. Machine
// reads the topology and the quota from /sys, /proc and the control groups.
//
// The package has no threads of its own. Any goroutine may call any function. The nodes
// of a process share its claims; nothing else outlives a call.
//
// Go moves goroutines between threads. So Pin is useful only between runtime.LockOSThread
// and the end of the thread.
package affinity
