package rdma

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// watcher waits for a descriptor of verbs with the poller of Go, so no thread waits.
type watcher struct {
	file *os.File
	raw  syscall.RawConn
}

// newWatcher watches a descriptor, which does not block and stays its owner's.
func newWatcher(fd int) (*watcher, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Descriptors(os.NewSyscallError("fcntl", err))
	}
	w := &watcher{file: os.NewFile(uintptr(own), "rdma events")}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// wait calls try now, and each time that the descriptor becomes readable, until it returns true. The error says that
// the watcher was closed or interrupted.
func (w *watcher) wait(try func() bool) error {
	return w.raw.Read(func(uintptr) bool { return try() })
}

// interrupt ends all waits. Concurrent.
func (w *watcher) interrupt() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) }

// close ends all waits. Concurrent.
func (w *watcher) close() { _ = w.file.Close() }
