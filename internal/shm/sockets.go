package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// SocketDir is the default directory of the sockets of this user's nodes.
func SocketDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("stepvan-%d", os.Getuid())) }

// holdTime is how long HoldSweep waits for a sweep. One that takes longer is stuck: its process is stopped.
const holdTime = time.Second

// HoldSweep keeps sweepers from the directory while sockets are bound there: between the making of
// the file and its socket the file looks like one of a killed process. A directory that cannot be locked is not swept
// either.
func HoldSweep(dir string) (release func()) {
	for began := time.Now(); time.Since(began) < holdTime; time.Sleep(time.Millisecond) {
		release, err := lock(dir, unix.LOCK_SH)
		if err == nil {
			return release
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
	}
	return func() {}
}

// SweepSocketDir sweeps SocketDir, if there is one and it is this user's alone.
func SweepSocketDir() {
	if dir := SocketDir(); checkPrivate(dir) == nil {
		Sweep(dir)
	}
}

// Sweep removes the sockets and the directories of Scratch that killed processes have left behind. It does nothing
// while another process sweeps.
func Sweep(dir string) {
	release, err := lock(dir, unix.LOCK_EX)
	if err != nil {
		return
	}
	defer release()
	entries, _ := os.ReadDir(dir) // what cannot be read stays
	for _, e := range entries {
		switch path := filepath.Join(dir, e.Name()); {
		case e.IsDir():
			sweepScratch(path)
		case e.Type() == os.ModeSocket:
			RemoveAbandoned(path)
		}
	}
}

// lock locks a directory without waiting. The kernel releases the lock of a process that dies.
func lock(dir string, how int) (release func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(fd, how|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return func() { _ = unix.Close(fd) }, nil
}

// RemoveAbandoned removes the file of a socket that a killed process has left behind. It leaves any other file alone.
func RemoveAbandoned(path string) {
	if fi, err := os.Stat(path); err == nil && fi.Mode()&os.ModeSocket != 0 && Abandoned(path) {
		_ = os.Remove(path)
	}
}

// Abandoned reports whether no process has the socket of a file.
func Abandoned(path string) bool { return errors.Is(probeSocket(path), unix.ECONNREFUSED) }

// Listening reports whether a process of this machine has the socket of a file, of a type other than datagram, and this
// process may connect to it.
func Listening(path string) bool { return errors.Is(probeSocket(path), unix.EPROTOTYPE) }

// probeSocket connects a datagram socket. It cannot connect to a socket of another type, so a listener notices nothing.
func probeSocket(path string) error {
	short, release, err := SocketPath(path)
	if err != nil {
		return err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: short})
}

// maxPath is the longest path of a socket that the kernel takes, without its ending 0.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// SocketPath returns a path for bind and connect that leads to the same file as path, which may be
// longer than the kernel takes there. It leads there until release.
func SocketPath(path string) (short string, release func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	dir, file := filepath.Split(path)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("opening the directory of a socket: %w", err)
	}
	short = fmt.Sprintf("/proc/self/fd/%d/%s", fd, file)
	if len(short) > maxPath {
		_ = unix.Close(fd)
		return "", nil, errs.Invalid("shm: the name of the socket %q is longer than the system takes", text.Cut(file))
	}
	return short, func() { _ = unix.Close(fd) }, nil
}
