package shmvan

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
)

// identity is which process the peer is, as the kernel says.
type identity struct {
	pid   int // as this process sees it; 0 when it cannot
	pidfd int // -1 when the kernel gives none, or the peer is this process
}

// identify refuses processes of other users.
func identify(raw syscall.RawConn) (id identity, err error) {
	id.pidfd = -1
	var cred *unix.Ucred
	e := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		if id.pid = int(cred.Pid); id.pid > 0 && id.pid != unix.Getpid() {
			id.pidfd = processDescriptor(int(fd), id.pid)
		}
	})
	switch {
	case e != nil:
		return id, netCause(e)
	case err != nil:
		return id, err
	case int(cred.Uid) != os.Getuid():
		id.close()
		return id, fmt.Errorf("the peer is a process of user %d, not of %d: %w", cred.Uid, os.Getuid(), stepvan.ErrNotSupported)
	}
	return id, nil
}

// processDescriptor returns a descriptor that tells of the end of the peer's process, or -1: the end of the socket
// tells of it as well. The kernel since 6.5 gives it with the socket; before that, the number could be another's
// already.
func processDescriptor(sock, pid int) int {
	if fd, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		return fd
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		return fd
	}
	return -1
}

// ended reports whether the process is known to have ended. A system call.
func (id *identity) ended() bool {
	if id.pidfd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(id.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

func (id *identity) close() {
	if id.pidfd >= 0 {
		_ = unix.Close(id.pidfd)
		id.pidfd = -1
	}
}
