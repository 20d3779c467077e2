package postoffice

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
)

// Stop waits until every living instance has called it, however long that takes, and leaves the cluster. It does not
// wait for dead ones. When ctx ends, or the scheduler is lost, it leaves without the others and says so. Further calls
// wait for the first and return nil. Other calls after Stop return [stepvan.ErrClosed]. The node stays open: close it
// afterwards.
func (f *Office) Stop(ctx context.Context) error {
	return f.stop.once(ctx, func() error { return f.leave(ctx) })
}

func (f *Office) leave(ctx context.Context) error {
	var err error
	if f.announceStop() {
		err = f.engine.Wait(ctx, &f.stopped)
	}
	f.lock()
	defer f.unlock()
	switch {
	case err != nil:
		err = &stepvan.OpError{Op: "stop", Err: fmt.Errorf("left without the others: %w", f.withMissing(err))}
	case f.cause != nil && !errors.Is(f.cause, stepvan.ErrClosed):
		err = &stepvan.OpError{Op: "stop", Peer: f.schedulerName(), Err: f.cause}
	}
	f.end(nil, "stopped")
	return err
}

// announceStop tells the scheduler that this instance has stopped, and reports whether there is something to wait for.
func (f *Office) announceStop() bool {
	f.lock()
	defer f.unlock()
	stopped := fmt.Errorf("this node has stopped: %w", stepvan.ErrClosed)
	f.barriers.fail(&stepvan.OpError{Op: "barrier", Err: stopped})
	f.board.fail(&stepvan.OpError{Op: "board", Err: stopped})
	switch f.phase {
	case officeJoined:
		f.phase, f.waiting = officeStopping, ""
		f.send(f.scheduler, frame{op: opStop})
		return true
	case officeJoining, officeIdle:
		f.end(fmt.Errorf("stopped while joining: %w", stepvan.ErrClosed), "stopped while joining")
	}
	return false
}

// Break makes the office over because of cause, after a panic: the state of its node cannot be relied on. It tells
// nobody, since the node closes the session. Operations return cause.
func (f *Office) Break(cause error) {
	f.lock()
	defer f.unlock()
	if f.phase == officeJoined {
		f.phase = officeStopping // the scheduler has not died
	}
	f.barriers.fail(&stepvan.OpError{Op: "barrier", Err: cause})
	f.board.fail(&stepvan.OpError{Op: "board", Err: cause})
	f.end(cause, "")
}
