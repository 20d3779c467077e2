package ps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/shm"
)

// socketDir is the directory of the Unix sockets of this user's nodes.
func socketDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("stepvan-%d", os.Getuid())) }

// holdTime is how long a sweep is waited for; then it is stuck, and its sweeper gone or stopped.
const holdTime = time.Second

// holdSweep keeps sweepers from the directory while sockets are bound there: between the making of
// the file and its socket the file looks like a left one. A directory that cannot be locked is not swept either.
func holdSweep(dir string) (release func()) {
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

// sweep removes the sockets that killed processes have left behind, unless somebody else is at it.
func sweep(dir string) {
	release, err := lock(dir, unix.LOCK_EX)
	if err != nil {
		return
	}
	defer release()
	entries, _ := os.ReadDir(dir) // what cannot be read stays
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); e.Type() == os.ModeSocket && deserted(path) {
			_ = os.Remove(path)
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

// deserted reports whether no process has the socket of a file. A datagram socket cannot connect to
// one of another type, so who listens is not disturbed.
func deserted(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}

// PrivateDir is the directory in which nodes of this user find each other on this machine. It makes
// the directory; an error says why it cannot be used.
func PrivateDir() (string, error) {
	dir := socketDir()
	return dir, shm.PrivateDir(dir)
}
