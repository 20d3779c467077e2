package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Affinity writes the cores that a thread may use to mask, one bit each, and returns how many words it wrote. Thread 0
// is the calling thread.
func Affinity(thread int, mask []uint64) (words int, err error) {
	n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(thread), uintptr(len(mask)*8), uintptr(unsafe.Pointer(&mask[0])))
	return int(n) / 8, failed(errno)
}

// SetAffinity binds a thread to the cores of mask.
func SetAffinity(thread int, mask []uint64) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, uintptr(thread), uintptr(len(mask)*8), uintptr(unsafe.Pointer(&mask[0])))
	return failed(errno)
}

// Yield offers the core of the calling thread to other threads. The Go runtime does not learn of it.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

// MemoryPolicy returns the mode of get_mempolicy(2) for the calling thread, and writes its NUMA nodes to nodes, one bit
// each.
func MemoryPolicy(nodes []uint64) (mode int, err error) {
	var m int32
	_, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&nodes[0])), uintptr(len(nodes)*64+1), 0, 0, 0)
	return int(m), failed(errno)
}

// SetMemoryPolicy is set_mempolicy(2) for the calling thread.
func SetMemoryPolicy(mode int, nodes []uint64) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(unsafe.SliceData(nodes))), uintptr(len(nodes)*64+1))
	return failed(errno)
}

// failed is nil when a call succeeded. An interface that holds errno 0 would not be nil.
func failed(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
