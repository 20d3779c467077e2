package launch

import (
	"errors"
	"fmt"
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
		if c.resErr != nil {
			return fmt.Errorf("%v: %w", c.child, c.resErr)
		}
	}
	for _, c := range r.processes {
		r.plan.Result(c.child, c.result)
	}
	return nil
}
