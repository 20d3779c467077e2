package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/stepvan/stepvan/internal/text"
)

// RelativeError is a directory that each process finds somewhere else.
type RelativeError struct{ Dir string }

// Error says what to set.
func (e *RelativeError) Error() string {
	return fmt.Sprintf("%q is a relative path, which leads each process to another directory: set TMPDIR to an absolute path, the same for all nodes", text.Cut(e.Dir))
}

// PrivateDir makes dir, whose path must be absolute, or checks that nobody but this user can enter it.
func PrivateDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return &RelativeError{dir}
	}
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	return checkPrivate(dir)
}

// checkPrivate says why others than this user can enter dir.
func checkPrivate(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, _ := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || st == nil || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("others than this user can enter %s: remove it, or set TMPDIR to another directory", dir)
	}
	return nil
}
