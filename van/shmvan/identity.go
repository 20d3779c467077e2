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
func identify(raw syscall.RawConn) (who identity, err error) {
	who.pidfd = -1
	var cred *unix.Ucred
	e := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		if who.pid = int(cred.Pid); who.pid > 0 && who.pid != unix.Getpid() {
			who.pidfd = processDescriptor(int(fd), who.pid)
		}
	})
	switch {
	case e != nil:
		return who, netCause(e)
	case err != nil:
		return who, err
	case int(cred.Uid) != os.Getuid():
		who.close()
		return who, fmt.Errorf("the peer is a process of user %d, not of %d: %w", cred.Uid, os.Getuid(), stepvan.ErrNotSupported)
	}
	return who, nil
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
func (w *identity) ended() bool {
	if w.pidfd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

func (w *identity) close() {
	if w.pidfd >= 0 {
		_ = unix.Close(w.pidfd)
		w.pidfd = -1
	}
}
