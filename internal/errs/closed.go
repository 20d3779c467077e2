package errs

import "github.com/stepvan/stepvan"

// Closed makes a stepvan.ErrClosed that reads text, and nothing else.
func Closed(text string) error { return closedError(text) }

type closedError string

func (e closedError) Error() string { return string(e) }

func (closedError) Unwrap() error { return stepvan.ErrClosed }
