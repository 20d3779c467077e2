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
	wait, err := f.announceStop()
	if wait {
		err = f.engine.Wait(ctx, &f.stopped)
	}
	f.lock()
	defer f.unlock()
	switch {
	case err != nil && f.waiting != "":
		err = &stepvan.OpError{Op: "stop", Err: fmt.Errorf("left without the others: %s: %w", f.waiting, err)}
	case err != nil:
		err = &stepvan.OpError{Op: "stop", Err: fmt.Errorf("left without the others: %w", err)}
	case f.cause != nil && !errors.Is(f.cause, stepvan.ErrClosed):
		err = &stepvan.OpError{Op: "stop", Peer: f.schedulerName(), Err: f.cause}
	}
	f.end(nil, "stopped")
	return err
}

// announceStop tells the scheduler that this instance has stopped. wait is false when there is no need to wait.
func (f *Office) announceStop() (wait bool, err error) {
	f.lock()
	defer f.unlock()
	f.barriers.fail(&stepvan.OpError{Op: "barrier", Err: fmt.Errorf("this node has stopped: %w", stepvan.ErrClosed)})
	switch f.phase {
	case officeJoined:
		f.phase, f.waiting = officeStopping, ""
		f.send(f.scheduler, frame{op: opStop})
		return true, nil
	case officeJoining, officeIdle:
		f.end(fmt.Errorf("stopped while joining: %w", stepvan.ErrClosed), "stopped while joining")
	}
	return false, nil
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
	f.end(cause, "")
}
