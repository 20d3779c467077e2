package bench

import (
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// copyLimit is the limit within a process: each side copies into the other's buffer
// and says so with an atomic number. Both sides share one copyLimit.
type copyLimit struct {
	from, to struct{ push, pull []byte }
	pushed   atomic.Uint64 // exchanges whose push has been copied
	answered atomic.Uint64 // exchanges whose answer has been copied
	closed   atomic.Bool
}

func newCopyLimit(sizes *spec) *copyLimit {
	l := &copyLimit{}
	l.from.push, l.to.push = make([]byte, sizes.Push), make([]byte, sizes.Push)
	l.from.pull, l.to.pull = make([]byte, sizes.Pull), make([]byte, sizes.Pull)
	return l
}

func (l *copyLimit) exchange() error {
	copy(l.to.push, l.from.push)
	n := l.pushed.Add(1)
	return l.wait(&l.answered, n)
}

func (l *copyLimit) answer() error {
	n := l.answered.Load() + 1
	if err := l.wait(&l.pushed, n); err != nil {
		return err
	}
	copy(l.to.pull, l.from.pull)
	l.answered.Store(n)
	return nil
}

// wait spins until the number has been reached, and offers the core to others.
func (l *copyLimit) wait(number *atomic.Uint64, reached uint64) error {
	alone := runtime.GOMAXPROCS(0) == 1
	var since time.Time
	for empty := 1; number.Load() < reached; empty++ {
		switch {
		case l.closed.Load():
			return net.ErrClosed
		case alone:
			runtime.Gosched()
		case empty%emptyBeforeYield == 0:
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
		}
		if empty == emptyBeforeClock {
			since = time.Now()
		}
		if empty%emptyBeforeClock == 0 && time.Since(since) > silentTime {
			return errs.Invalid("the other side has been silent for %v", silentTime)
		}
	}
	return nil
}

func (l *copyLimit) close() { l.closed.Store(true) }
