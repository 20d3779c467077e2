package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// scratchPrefix begins the names of directories that Scratch has made.
const scratchPrefix = "scratch."

// Scratch makes a directory for files of this process in dir, which it makes private, until remove. Sweep
// removes it, with all that is in it, when this process has ended without.
func Scratch(dir, name string) (path string, remove func() error, err error) {
	if err := PrivateDir(dir); err != nil {
		return "", nil, err
	}
	Sweep(dir)
	defer HoldSweep(dir)()
	if path, err = os.MkdirTemp(dir, scratchPrefix+name+"."); err != nil {
		return "", nil, err
	}
	release, err := lock(path, unix.LOCK_EX)
	if err != nil {
		_ = os.Remove(path)
		return "", nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return path, func() error {
		defer release()
		return os.RemoveAll(path)
	}, nil
}

// sweepScratch removes a directory of Scratch whose process has gone: the kernel has released its lock.
func sweepScratch(path string) {
	if !strings.HasPrefix(filepath.Base(path), scratchPrefix) {
		return
	}
	if release, err := lock(path, unix.LOCK_EX); err == nil {
		_ = os.RemoveAll(path)
		release()
	}
}
