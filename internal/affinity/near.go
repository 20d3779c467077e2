package affinity

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

// Policies of set_mempolicy(2), as linux/mempolicy.h numbers them.
const (
	policyPreferred     = 1
	policyPreferredMany = 5 // Linux 5.15 and later
)

// Near runs fn on a thread that takes new memory from the given NUMA nodes, or from others when
// these have none left. Afterwards the thread has its earlier policy again. Near runs fn in any
// case. After an error the memory lies where the system chose. The error wraps
// stepvan.ErrNotSupported when the process may not choose.
func Near(nodes []int, fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := prefer(nodes)
	if err == nil {
		defer func() { _ = sys.SetMemoryPolicy(before.mode, before.nodes[:]) }()
	}
	fn()
	return err
}

// policy is where a thread takes memory from: a mode with its flags, and the nodes.
type policy struct {
	mode  int
	nodes [maxNodes / 64]uint64
}

// currentPolicy returns the policy of the calling thread.
func currentPolicy() (p policy, err error) {
	if p.mode, err = sys.MemoryPolicy(p.nodes[:]); err != nil {
		return p, refused("get_mempolicy", err)
	}
	return p, nil
}

// refused explains why the kernel refused a call.
func refused(call string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("memory cannot be placed on NUMA nodes: %s: %w (a container needs CAP_SYS_NICE or a seccomp profile that allows it): %w", call, err, stepvan.ErrNotSupported)
	}
	return fmt.Errorf("memory cannot be placed on NUMA nodes: %s: %w", call, err)
}

// maxNodes is the most NUMA nodes that Linux can be built for.
const maxNodes = 1024

// prefer sets the policy of the calling thread, and returns the earlier one.
func prefer(nodes []int) (before policy, err error) {
	if len(nodes) == 0 {
		return before, errs.Invalid("NUMA nodes: too few (got 0, want 1 or more)")
	}
	var mask [maxNodes / 64]uint64
	for _, n := range nodes {
		if n < 0 || n >= maxNodes {
			return before, errs.Invalid("NUMA node: none that Linux can have (got %d, want 0 to %d)", n, maxNodes-1)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	if before, err = currentPolicy(); err != nil {
		return before, err
	}
	err = sys.SetMemoryPolicy(policyPreferredMany, mask[:])
	if errors.Is(err, unix.EINVAL) { // an older kernel, which prefers one node at most
		mask = [maxNodes / 64]uint64{}
		mask[nodes[0]/64] |= 1 << (nodes[0] % 64)
		err = sys.SetMemoryPolicy(policyPreferred, mask[:])
	}
	if err != nil {
		return before, fmt.Errorf("nodes %v: %w", nodes, refused("set_mempolicy", err))
	}
	return before, nil
}
