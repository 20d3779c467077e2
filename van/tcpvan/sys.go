package tcpvan

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Raw system calls of the data path. None of them blocks, so none tells Go's
// scheduler; each retries EINTR. A result of 0 bytes and errno 0 is the end of a stream.

const (
	again     = syscall.EAGAIN
	maxIovecs = 1024 // IOV_MAX
)

func sendmsg(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	msg := unix.Msghdr{Iov: &iov[0]}
	msg.SetIovlen(len(iov))
	for {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

func readv(fd int, iov []unix.Iovec) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

func recv(fd int, b []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags|unix.MSG_DONTWAIT, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// epollWait returns at once. Errors other than EINTR mean a wrong descriptor, and read as "nothing".
func epollWait(epfd int, events []unix.EpollEvent) int {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if e == 0 {
			return int(n)
		}
		if e != unix.EINTR {
			return 0
		}
	}
}

// signalEventfd adds 1 to an eventfd. It is registered edge-triggered and never read: each write is an edge.
func signalEventfd(fd int) {
	one := uint64(1)
	for {
		_, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
		if e != unix.EINTR {
			return
		}
	}
}

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}
