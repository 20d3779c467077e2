package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Failure is the error of a run that ended because a child failed.
type Failure struct {
	Child  Child
	Status int         // exit status; -1 when a signal ended it
	Signal unix.Signal // the signal that ended it; 0: none
	Core   bool        // it left a core dump
	Stderr []string    // its last lines on standard error, oldest first
}

// Error names the child and how it ended, and quotes its last lines.
func (f *Failure) Error() string {
	var b strings.Builder
	b.WriteString(f.short())
	if len(f.Stderr) > 0 {
		b.WriteString("; its last lines:")
	}
	for _, line := range f.Stderr {
		b.WriteString("\n    " + line)
	}
	return b.String()
}

// short is the first line of Error.
func (f *Failure) short() string {
	switch {
	case f.Signal == unix.SIGKILL:
		return fmt.Sprintf("%v failed: killed by SIGKILL, by another process or because memory was short (see dmesg)", f.Child)
	case f.Core:
		return fmt.Sprintf("%v failed: killed by %s, core dumped", f.Child, unix.SignalName(f.Signal))
	case f.Signal != 0:
		return fmt.Sprintf("%v failed: killed by %s", f.Child, unix.SignalName(f.Signal))
	}
	return fmt.Sprintf("%v failed: exit status %d", f.Child, f.Status)
}

// Interrupted is the error of a run that a signal ended.
type Interrupted struct{ Signal unix.Signal }

// Error names the signal.
func (e *Interrupted) Error() string { return "stopped by " + unix.SignalName(e.Signal) }

// Stopped is the error of a run that ended with its context.
type Stopped struct {
	Running []Child // the children that had not ended
	Err     error   // context.Cause
}

// Error gives the cause and the children that were still running.
func (e *Stopped) Error() string {
	if len(e.Running) == 0 {
		return fmt.Sprintf("stopped: %v", e.Err)
	}
	names := make([]string, len(e.Running))
	for i, c := range e.Running {
		names[i] = c.String()
	}
	return fmt.Sprintf("stopped: %v; still running: %s", e.Err, strings.Join(names, ", "))
}

// Unwrap returns the cause.
func (e *Stopped) Unwrap() error { return e.Err }

// The exit codes of shells and of timeout(1).
const (
	codeTimeout     = 124
	codeNotRunnable = 126
	codeNotFound    = 127
	codeSignal      = 128 // plus the signal
)

// ExitCode is the exit code for a program after Run returned err. It is the status of the first
// failure, or 128 plus the signal that ended the child or the run. It is 124 after a deadline, 126
// for a program that cannot run, and 127 for one that does not exist. Other errors give 1.
func ExitCode(err error) int {
	var failure *Failure
	var interrupted *Interrupted
	var command *CommandError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure) && failure.Signal != 0:
		return codeSignal + int(failure.Signal)
	case errors.As(err, &failure):
		return failure.Status
	case errors.As(err, &interrupted):
		return codeSignal + int(interrupted.Signal)
	case errors.As(err, &command) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound)):
		return codeNotFound
	case errors.As(err, &command):
		return codeNotRunnable
	case errors.Is(err, unix.EPIPE):
		return codeSignal + int(unix.SIGPIPE)
	case errors.Is(err, context.DeadlineExceeded):
		return codeTimeout
	}
	return 1
}
