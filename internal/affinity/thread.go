package affinity

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/sys"
)

// self names the calling thread to the kernel.
const self = 0

// Allowed returns the cores that the calling thread may use.
func Allowed() (Set, error) { return maskOf(self) }

func maskOf(tid int) (Set, error) {
	s := Set{words: make([]uint64, MaxCores/64)}
	n, err := sys.Affinity(tid, s.words)
	if err != nil {
		return Set{}, fmt.Errorf("sched_getaffinity: %w", err)
	}
	s.words = s.words[:n]
	return s, nil
}

// Pin binds the calling thread to the cores. The thread must be allowed to use at least one of
// them. The caller has locked its goroutine to the thread, and does not unlock it: the thread ends
// with the goroutine.
func Pin(s Set) error { return bind(self, s) }

func bind(tid int, s Set) error {
	if s.Len() == 0 {
		return errs.Invalid("cores: too few to bind to (got 0, want 1 or more)")
	}
	err := sys.SetAffinity(tid, s.words)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		return errs.Invalid("cores: none exists here and is allowed (got %v): look at the cpuset of the control group", s)
	}
	return fmt.Errorf("sched_setaffinity to cores %v: %w", s, err)
}

func gone(err error) bool { return errors.Is(err, unix.ESRCH) }
