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

// Failure is the error of a run that a child has ended by failing first.
type Failure struct {
	Child  Child
	Status int         // exit status; -1 when a signal ended it
	Signal unix.Signal // what ended it; 0 when it ended by itself
	Core   bool        // it left a core dump
	Stderr []string    // its last lines on standard error, oldest first
}

// Error names the child and how it ended, and quotes its last words.
func (f *Failure) Error() string {
	var b strings.Builder
	b.WriteString(f.short())
	if len(f.Stderr) > 0 {
		b.WriteString("; its last words:")
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
		return fmt.Sprintf("%v failed: killed by SIGKILL, from outside or for want of memory (dmesg tells)", f.Child)
	case f.Core:
		return fmt.Sprintf("%v failed: killed by %s, core dumped", f.Child, unix.SignalName(f.Signal))
	case f.Signal != 0:
		return fmt.Sprintf("%v failed: killed by %s", f.Child, unix.SignalName(f.Signal))
	}
	return fmt.Sprintf("%v failed: exit status %d", f.Child, f.Status)
}

// Interrupted is the error of a run that a signal has ended.
type Interrupted struct{ Signal unix.Signal }

// Error names the signal.
func (e *Interrupted) Error() string { return "stopped by " + unix.SignalName(e.Signal) }

// Stopped is the error of a run that has ended because its context has.
type Stopped struct {
	Running []Child // who had not ended by then
	Err     error   // context.Cause
}

// Error gives the cause and who was still running.
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

// ExitCode is the code with which a program should end after Run has returned err:
// that of the first failure; 128 and the signal where one was the reason; 124
// after a deadline; 126 or 127 for a program that cannot be run or found; 0
// without an error and 1 for any other.
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
