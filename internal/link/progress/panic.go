package progress

import (
	"fmt"

	"github.com/stepvan/stepvan"
)

// Fail ends the engine because of cause: all waits return it, and so do those to come. Nobody takes the token any more; who
// holds it gives it back when it looks. Close is still to be called. The first cause counts. Any goroutine; it does not wait for anybody.
func (e *Engine) Fail(cause error) {
	e.cause.CompareAndSwap(nil, &cause)
	e.word.Or(closed)
	e.Kick()
	e.parker.rouse()
	e.wakeFor(nil)
}

// ended is why nobody can wait any more.
func (e *Engine) ended() error {
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return stepvan.ErrClosed
}

// stretch is what is known about a goroutine that may drive, should it panic.
type stretch struct {
	driving bool // it holds the token
	ended   bool // without a panic: spares the question
}

// caught is deferred by the outermost functions that drive. After a panic the state of the source is not known, so the
// engine fails; the token, if this goroutine holds it, is left to Close. Budget of a stretch that has ended: a call.
func (e *Engine) caught(s *stretch, err *error) {
	if s.ended {
		return
	}
	value := recover()
	if value == nil {
		return
	}
	contain, cause := e.verdictOn(value, s.driving)
	e.Fail(cause)
	if s.driving {
		e.word.And(^held)
	}
	if !contain {
		panic(value)
	}
	*err = cause
}

func (e *Engine) verdictOn(value any, driving bool) (contain bool, cause error) {
	if e.panicked == nil {
		return false, fmt.Errorf("stepvan: progress: panic: %v", value)
	}
	return e.panicked(value, driving)
}

// Report fails the engine after a panic that who drives has recovered, and tells whether the panic ends there; else who
// has recovered it panics again. The token stays with the caller. Within the methods of Source only.
func (e *Engine) Report(value any) (contain bool) {
	contain, cause := e.verdictOn(value, true)
	e.Fail(cause)
	return contain
}
