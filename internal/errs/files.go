package errs

import (
	"errors"
	"fmt"
	"syscall"
)

// Descriptors adds to an error of the kernel that file descriptors have run out, and where the limit is. It returns
// other errors as they are.
func Descriptors(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("all %s files that this process may have open are in use: raise the limit (ulimit -n): %w", fileLimit(), err)
	case errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("all files that this machine may have open are in use: raise the limit (sysctl fs.file-max): %w", err)
	}
	return err
}

func fileLimit() string {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return "the"
	}
	return fmt.Sprint(l.Cur)
}
