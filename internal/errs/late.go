package errs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lateError is a wait that has ended in vain. Its text stands for that of its cause.
type lateError struct {
	text  string
	cause error // wraps that of a context
}

// Error says what was waited for, or how long.
func (e *lateError) Error() string { return e.text }

// Unwrap returns the cause, for errors.Is.
func (e *lateError) Unwrap() error { return e.cause }

// Timeout reports whether the time was up, as net.Error does.
func (e *lateError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }

// Late is the error of a wait that a context has ended. cause is the error of the context. Its own text tells people
// nothing, so text replaces it.
func Late(text string, cause error) error { return &lateError{text, cause} }

// GaveUp is Late with how long the wait has lasted. The caller adds what it was for.
func GaveUp(after time.Duration, cause error) error {
	verb := "gave up"
	if errors.Is(cause, context.Canceled) {
		verb = "was cancelled"
	}
	return Late(fmt.Sprintf("%s after %v", verb, after.Round(time.Millisecond)), cause)
}
