package postoffice

import (
	"context"
	"fmt"

	"github.com/stepvan/stepvan"
)

// Stop waits until every instance has left or is dead, however long that takes: the scheduler never leaves first.
// Before the cluster is complete it refuses the instances that wait. When ctx ends it stops anyway, and the error names
// those that still live. Further calls wait for the first and return nil. It must be called to end the scheduler's
// timer. The node stays open: close it afterwards.
func (s *Scheduler) Stop(ctx context.Context) error {
	return s.stop.once(ctx, func() error {
		err := s.awaitEmpty(ctx)
		s.close(&err)
		<-s.done
		return err
	})
}

// awaitEmpty waits until no instance is left.
func (s *Scheduler) awaitEmpty(ctx context.Context) error {
	s.lock()
	if s.phase == phaseWaiting {
		s.abort(failure{Kind: failClosed, Text: "the scheduler was stopped before the cluster was complete"})
	}
	s.checkEmpty()
	s.unlock()
	return s.engine.Wait(ctx, &s.empty)
}

func (s *Scheduler) close(err *error) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return // by Break, whose cause err is
	}
	alive := s.members.living()
	switch {
	case len(alive) == 0:
		*err = nil // only goodbyes were on their way
	case *err != nil:
		*err = &stepvan.OpError{Op: "stop", Err: fmt.Errorf("%s had not left: %w", instances(alive), *err)}
	}
	s.phase = phaseClosed
	stopped := fmt.Errorf("the scheduler has stopped: %w", stepvan.ErrClosed)
	s.calls.fail(&stepvan.OpError{Op: "barrier", Err: stopped})
	s.keeper.own.fail(&stepvan.OpError{Op: "board", Err: stopped})
	for c := range s.conns {
		s.dismiss(c, "the scheduler has stopped")
	}
	s.refusals.End()
	close(s.quit)
}

// checkEmpty lets Stop return when no instance is left.
func (s *Scheduler) checkEmpty() {
	if s.phase != phaseWaiting && s.phase != phaseStarting && s.members.alive == 0 && len(s.leaving) == 0 {
		s.engine.Set(&s.empty)
	}
}

// checkStop lets all instances leave when all that live have stopped.
func (s *Scheduler) checkStop() {
	if s.phase == phaseRunning && s.members.alive > 0 && s.members.stopping == s.members.alive {
		s.phase = phaseStopped
		s.o.Log.Info().Msgf("all %d nodes that live have stopped", s.members.alive)
		s.losses.send() // an instance that leaves knows which nodes the cluster has lost
		s.broadcast(frame{op: opStopped})
	}
}

// Break makes the scheduler over because of cause, after a panic: its state cannot be relied on. It tells no instance,
// since the node closes the sessions. Barriers return cause. Stop must still be called.
func (s *Scheduler) Break(cause error) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return
	}
	s.phase, s.err = phaseClosed, cause
	s.calls.fail(&stepvan.OpError{Op: "barrier", Err: cause})
	s.keeper.own.fail(&stepvan.OpError{Op: "board", Err: cause})
	close(s.quit)
}
