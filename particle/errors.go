package particle

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
)

// HookError says that a hook has failed. It is a [stepvan.ErrRemote].
type HookError struct {
	Particle ID
	Message  string
	Text     string // of the hook, perhaps with several lines, such as a traceback
}

// Error has the whole text.
func (e *HookError) Error() string {
	return fmt.Sprintf("send: particle %d: its hook for message %q has failed: %s", e.Particle, e.Message, e.Text)
}

// Unwrap makes it a [stepvan.ErrRemote].
func (e *HookError) Unwrap() error { return stepvan.ErrRemote }

// failure is an error on its way to the caller.
type failure struct {
	code code
	text string
}

// Error returns the text.
func (e *failure) Error() string { return e.text }

func fail(c code, format string, args ...any) *failure {
	return &failure{c, fmt.Sprintf(format, args...)}
}

// failureOf is an error as it travels.
func failureOf(err error) *failure {
	if err == nil {
		return fail(codeClosed, "the loop is over")
	}
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	c := codeInvalid
	switch {
	case errors.Is(err, stepvan.ErrWouldBlock), errors.Is(err, stepvan.ErrNoMemory):
		c = codeFull
	case errors.Is(err, stepvan.ErrNotSupported):
		c = codeRefused
	case errors.Is(err, stepvan.ErrClosed):
		c = codeClosed
	}
	return &failure{c, err.Error()}
}

// kinds are what the codes are to the caller.
var kinds = [codeEnd]error{
	codeInvalid: stepvan.ErrInvalid, codeRefused: stepvan.ErrNotSupported, codeFull: stepvan.ErrWouldBlock, codeClosed: stepvan.ErrClosed,
}

// at is the failure as the caller of a future gets it.
func (e *failure) at(f *Future) error {
	if e.code == codeHook {
		return &HookError{f.to, f.name, e.text}
	}
	return &stepvan.OpError{Op: "send", Peer: f.remote.nameOf(), Err: fmt.Errorf("particle %d: %s: %s: %w", f.to, f.what(), e.text, kinds[e.code])}
}

// cut shortens the text of an error to what travels. It keeps the end, where a traceback has its reason.
func cut(s string) string {
	if len(s) <= maxText {
		return strings.ToValidUTF8(s, "?")
	}
	return "... " + strings.ToValidUTF8(s[len(s)-maxText+8:], "?")
}
