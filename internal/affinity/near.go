package affinity

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// Policies of set_mempolicy(2), as linux/mempolicy.h numbers them.
const (
	policyDefault       = 0
	policyPreferred     = 1
	policyPreferredMany = 5 // Linux 5.15 and later
)

// Near runs fn on a thread that takes new memory from the NUMA nodes, and from others when these have
// none. fn is run in any case. The error says that the memory lies where the system chose: it wraps
// errs.ErrNotSupported where the process is forbidden to say.
func Near(nodes []int, fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := prefer(nodes)
	if err == nil {
		defer func() { _ = setPolicy(policyDefault, nil) }()
	}
	fn()
	return err
}

// maxNodes is the most NUMA nodes that Linux can be built for.
const maxNodes = 1024

func prefer(nodes []int) error {
	if len(nodes) == 0 {
		return errs.Invalid("no NUMA node to take memory from")
	}
	var mask [maxNodes / 64]uint64
	for _, n := range nodes {
		if n < 0 || n >= maxNodes {
			return errs.Invalid("NUMA node %d", n)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	err := setPolicy(policyPreferredMany, mask[:])
	if errors.Is(err, unix.EINVAL) { // an older kernel, which prefers one node at most
		mask = [maxNodes / 64]uint64{}
		mask[nodes[0]/64] |= 1 << (nodes[0] % 64)
		err = setPolicy(policyPreferred, mask[:])
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("memory cannot be taken from NUMA nodes of choice: set_mempolicy: %w (a container needs CAP_SYS_NICE or a seccomp profile that allows it): %w", err, errs.ErrNotSupported)
	}
	return fmt.Errorf("memory cannot be taken from NUMA nodes %v: set_mempolicy: %w", nodes, err)
}

func setPolicy(mode int, mask []uint64) error {
	var p unsafe.Pointer
	if len(mask) > 0 {
		p = unsafe.Pointer(&mask[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(p), uintptr(len(mask)*64+1)); errno != 0 {
		return errno
	}
	return nil
}
