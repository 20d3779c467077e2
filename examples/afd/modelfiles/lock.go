package modelfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a waiting process tries the lock. The kernel's own wait could not
// be cancelled.
const lockPoll = 100 * time.Millisecond

// lock takes the advisory lock on path. The kernel frees it when its holder ends. lock
// calls waiting once when another process holds the lock.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("model files: %w", err)
	}
	unlock = func() { _ = f.Close() } // closing frees the lock
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			unlock()
			return nil, fmt.Errorf("model files: lock %s: %w", path, err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}
