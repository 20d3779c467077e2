package progress

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Fail ends the engine because of cause: all waits return cause, and so do later ones. Nobody takes the token any more,
// and its holder gives it back as soon as it looks. Close must still be called. The first cause counts. Any goroutine;
// it does not block.
func (e *Engine) Fail(cause error) {
	e.cause.CompareAndSwap(nil, &cause)
	e.token.mark(closed)
	e.WakeAll()
	e.sleeper.wakeSleeper()
	e.waiters.wake(nil)
}

// ended is why nobody can wait any more.
func (e *Engine) ended() error {
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return stepvan.ErrClosed
}

// driving is what recoverPanic needs to know about a goroutine that drives.
type driving struct {
	holdsToken bool
	ended      bool // without a panic: spares the call of recover
}

// The outermost functions that drive defer recoverPanic. The state of the source is unknown after a panic, so the
// engine fails. If this goroutine holds the token, recoverPanic leaves the token to Close. Budget without a panic: a
// call.
func (e *Engine) recoverPanic(d *driving, err *error) {
	if d.ended {
		return
	}
	value := recover()
	if value == nil {
		return
	}
	contain, cause := e.askPanicked(value, d.holdsToken)
	e.Fail(cause)
	if d.holdsToken {
		e.token.clear(held)
	}
	if !contain {
		panic(value)
	}
	*err = cause
}

// askPanicked asks Options.Panicked what becomes of a panic.
func (e *Engine) askPanicked(value any, driving bool) (contain bool, cause error) {
	if e.panicked == nil {
		return false, fmt.Errorf("stepvan: progress: panic: %v", value)
	}
	return e.panicked(value, driving)
}

// ReportPanic fails the engine after a panic that the holder of the token has recovered. It reports whether the panic
// ends there; otherwise the caller panics again. The token stays with the caller. Only within the methods of Source.
func (e *Engine) ReportPanic(value any) (contain bool) {
	contain, cause := e.askPanicked(value, true)
	e.Fail(cause)
	return contain
}
