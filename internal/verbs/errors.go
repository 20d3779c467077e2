package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/stepvan/stepvan"
)

// ErrNotInBuild: the program was built without cgo. It wraps stepvan.ErrNotSupported.
var ErrNotInBuild = fmt.Errorf("verbs: RDMA is not in this build: build with CGO_ENABLED=1 and a C compiler: %w", stepvan.ErrNotSupported)

// LibraryError: a library of RDMA is not there or cannot be used. It wraps stepvan.ErrNotSupported.
type LibraryError struct {
	Reason string // begins with the file: "libibverbs.so.1: cannot open shared object file: No such file or directory"
}

// Error says how to install the library.
func (e *LibraryError) Error() string {
	return "load: " + e.Reason + ": install rdma-core (on Debian: apt-get install libibverbs1 librdmacm1 ibverbs-providers)"
}

// Unwrap returns stepvan.ErrNotSupported.
func (*LibraryError) Unwrap() error { return stepvan.ErrNotSupported }

// notSupported is an errno that the kernel should keep for itself (ENOTSUPP): its driver lacks the operation.
const notSupported = syscall.Errno(524)

// Error is a call of a library that failed. Errors.Is finds Errno in it, and stepvan.ErrNotSupported or
// stepvan.ErrNoMemory where that is what Errno means.
type Error struct {
	Op     string // in the words of the libraries: "reg_mr", "post_send", "resolve_addr"
	Device string // "mlx5_0"; "" where none is known
	Errno  syscall.Errno
	Advice string // what the user can do; "" where nothing is known
}

// Error reads "reg_mr: mlx5_0: cannot allocate memory: raise the limit of locked memory (ulimit -l)".
func (e *Error) Error() string {
	what := e.Errno.Error()
	switch e.Errno {
	case notSupported, syscall.EOPNOTSUPP, syscall.ENOSYS:
		what = "the driver, the kernel or the library does not support it"
	}
	return join(e.Op, e.Device, what, e.Advice)
}

// Unwrap returns Errno, and the error of stepvan that means the same.
func (e *Error) Unwrap() []error {
	switch {
	case e.Errno == notSupported, errors.Is(e.Errno, errors.ErrUnsupported):
		return []error{e.Errno, stepvan.ErrNotSupported}
	case e.Errno == syscall.ENOMEM && e.Op != opPostSend && e.Op != opPostReceive:
		return []error{e.Errno, stepvan.ErrNoMemory}
	}
	return []error{e.Errno}
}

const (
	opPostSend     = "post_send"
	opPostReceive  = "post_recv"
	opRegister     = "reg_mr"
	opUnregister   = "dereg_mr"
	opDevices      = "get_devices"
	opEventChannel = "create_event_channel"
	opFork         = "fork_init"
)

// failed makes the error of a call.
func failed(op, device string, errno syscall.Errno) error {
	return &Error{Op: op, Device: device, Errno: errno, Advice: advice(op, errno)}
}

// advice is what a user can do about a failed call.
func advice(op string, errno syscall.Errno) string {
	switch {
	case op == opPostSend && errno == syscall.ENOMEM:
		return "the send queue is full, or the request has more inline data or segments than the queue pair takes"
	case op == opPostSend && errno == syscall.EINVAL:
		return "the request has more inline data or segments than the queue pair takes, or an operation that it lacks"
	case op == opPostReceive && errno == syscall.ENOMEM:
		return "the receive queue is full, or the request has more segments than the queue pair takes"
	case op == opRegister && errno == syscall.ENOMEM:
		return "raise the limit of locked memory (ulimit -l, memlock of the container)"
	case op == opRegister && errno == syscall.EFAULT:
		return "the range must be mapped, and writable where it is registered for writing"
	case op == opFork:
		return "another library of this process has registered memory before: set RDMAV_FORK_SAFE=1"
	case op == opUnregister && errno == syscall.EBUSY:
		return "close the windows that are bound to it"
	case errno == syscall.ENODEV && (op == opDevices || op == opEventChannel):
		return "rdma_cm needs the kernel module rdma_ucm and a device"
	case errno == syscall.EACCES || errno == syscall.EPERM:
		return "the user needs access to /dev/infiniband (uverbs and rdma_cm)"
	case op == "create_qp" && errno == syscall.ENOMEM:
		return "the device has no room for such a queue pair: ask for fewer or shorter requests"
	}
	return ""
}

// InUseError: an object cannot be closed before those that use it. It wraps stepvan.ErrBusy.
type InUseError struct {
	Object string   // "protection domain of mlx5_0"
	Users  []string // "queue pair 0x1a"
}

// Error names the users.
func (e *InUseError) Error() string {
	return fmt.Sprintf("close: %s: %s still %s it: close first what uses it", e.Object, strings.Join(e.Users, ", "), verb(len(e.Users)))
}

func verb(n int) string {
	if n == 1 {
		return "uses"
	}
	return "use"
}

// Unwrap returns stepvan.ErrBusy.
func (*InUseError) Unwrap() error { return stepvan.ErrBusy }

// CompletionError is a request that failed after it was posted. Its queue pair takes no more requests. It wraps
// stepvan.ErrPeerLost where the peer did not answer.
type CompletionError struct {
	Op     string // the caller's word for the request: a failed completion does not say it
	Device string
	QP     QPNumber
	Status Status
	Vendor uint32 // what the device adds, in the words of its vendor
}

// Error reads "write: mlx5_0: queue pair 0x1a: the peer did not answer (status 12, vendor code 0x81)".
func (e *CompletionError) Error() string {
	what := fmt.Sprintf("%v (status %d, vendor code %#x)", e.Status, uint32(e.Status), e.Vendor)
	return join(e.Op, e.Device, e.QP.String(), what)
}

// Unwrap returns stepvan.ErrPeerLost if the peer did not answer.
func (e *CompletionError) Unwrap() error {
	if e.Status == StatusRetryExceeded || e.Status == StatusTimeout {
		return stepvan.ErrPeerLost
	}
	return nil
}

// join puts colons between the parts that are not empty.
func join(parts ...string) string {
	kept := parts[:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ": ")
}
