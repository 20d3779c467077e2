package launch

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/errs"
)

// err is what Run returns, after all processes have ended.
func (r *run) err() error {
	if r.cause == nil {
		select {
		case r.cause = <-r.printer.broken:
		default:
		}
	}
	if r.stuck {
		return errors.Join(r.cause, r.stuckError())
	}
	var f *Failure
	if errors.As(r.cause, &f) && r.failed != nil && r.printed {
		f.Stderr = r.failed.tail.lines
	}
	if r.cause != nil || r.plan.Result == nil || !r.printed {
		return r.cause
	}
	return r.deliverResults()
}

// stuckError names the processes that SIGKILL does not end.
func (r *run) stuckError() error {
	var names []string
	for _, c := range r.runningChildren() {
		names = append(names, fmt.Sprintf("%v (pid %d)", c, c.PID))
	}
	for _, p := range r.descendants.survivors() {
		names = append(names, fmt.Sprintf("pid %d", p.pid))
	}
	return fmt.Errorf("processes that SIGKILL does not end, stuck in the kernel: %v", names)
}

// deliverResults hands the results to the caller.
func (r *run) deliverResults() error {
	for _, c := range r.processes {
		if c.broken != nil {
			return fmt.Errorf("%v: %w", c.child, c.broken)
		}
	}
	for _, c := range r.processes {
		r.plan.Result(c.child, c.result)
	}
	return nil
}

// MaxResult is the most that a child may write as its result, in bytes.
const MaxResult = 16 << 20

// resultFD is the descriptor of the pipe in the child.
const resultFD = 3

// ResultFile returns the pipe on which a child hands its result to Plan.Result. Call it once, in a
// child of a run with Plan.Result, and close the file after the last write. Programs that the child
// starts do not inherit it.
func ResultFile() (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(resultFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, errs.Invalid("descriptor %d is not a pipe: the launcher of this process expects no result", resultFD)
	}
	unix.CloseOnExec(resultFD)
	return os.NewFile(resultFD, "result"), nil
}

// collect reads a result to its end.
func collect(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, MaxResult+1))
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if len(content) > MaxResult {
		return nil, errs.Invalid("result: too long (want at most %d MiB)", MaxResult>>20)
	}
	return content, nil
}
