package shmvan

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
)

// identity is which process the peer is, as the kernel says.
type identity struct {
	pid   int // as this process sees it; 0 when it cannot
	pidfd int // -1 when the kernel gives none, or the peer is this process
}

// identify refuses processes of other users.
func identify(c syscall.Conn) (id identity, err error) {
	id.pidfd = -1
	var cred *unix.Ucred
	e := sys.Control(c, func(fd int) {
		if cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		if id.pid = int(cred.Pid); id.pid > 0 && id.pid != unix.Getpid() {
			id.pidfd = processDescriptor(fd, id.pid)
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
	return id.pidfd >= 0 && sys.Shows(id.pidfd, unix.POLLIN)
}

func (id *identity) close() {
	if id.pidfd >= 0 {
		_ = unix.Close(id.pidfd)
		id.pidfd = -1
	}
}
