package postoffice

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
)

// Stop waits until every node has left or is dead, however long that takes: the
// scheduler never leaves first. Before the cluster is complete it refuses whoever
// waits. When ctx ends it stops anyway, and the error names who still lives.
// Further calls wait for the first and return nil. It must be called
// to end the scheduler's timer. The node itself stays open: close it afterwards.
func (s *Scheduler) Stop(ctx context.Context) error {
	if !s.stop.first() {
		return s.stop.wait(ctx)
	}
	s.lock()
	if s.phase == phaseWaiting {
		s.abort(failure{Kind: failClosed, Text: "the scheduler was stopped before the cluster was complete"})
	}
	s.settle()
	s.unlock()
	err := s.engine.Wait(ctx, &s.empty)
	s.close(&err)
	s.stop.finish()
	<-s.done
	return err
}

func (s *Scheduler) close(err *error) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return // by Break, whose cause err is
	}
	var alive []Peer
	for _, m := range s.living() {
		alive = append(alive, m.info)
	}
	switch {
	case len(alive) == 0:
		*err = nil // only goodbyes were on their way
	case *err != nil:
		*err = &stepvan.OpError{Op: "stop", Err: fmt.Errorf("%s had not left: %w", crowd(alive), *err)}
	}
	s.phase = phaseClosed
	s.caller.fail(&stepvan.OpError{Op: "barrier", Err: fmt.Errorf("the scheduler has stopped: %w", stepvan.ErrClosed)})
	for c := range s.conns {
		s.dismiss(c, "the scheduler has stopped")
	}
	s.strange.End()
	close(s.quit)
}

// settle lets Stop return when nobody is left.
func (s *Scheduler) settle() {
	if s.phase != phaseWaiting && s.phase != phaseStarting && s.alive == 0 && len(s.leaving) == 0 {
		s.engine.Set(&s.empty)
	}
}

// stopOf notes that m has stopped working.
func (s *Scheduler) stopOf(m *member) error {
	if m.stopping {
		return malformed(opStop, "not expected")
	}
	m.stopping = true
	s.stopping++
	if s.stopping == 1 {
		s.notes.stop = ripple{since: time.Now(), step: s.o.WaitingEvery / 5}
	}
	s.checkStop()
	return nil
}

// checkStop lets everybody leave when all that live have stopped.
func (s *Scheduler) checkStop() {
	if s.phase == phaseRunning && s.alive > 0 && s.stopping == s.alive {
		s.phase = phaseStopped
		s.o.Log.Info().Msgf("all %d nodes that live have stopped", s.alive)
		s.spread() // who leaves knows whom the cluster has lost
		s.broadcast(frame{op: opStopped})
	}
}

// Break makes the scheduler over because of cause, where its state is not to be relied on any more. Nobody is told: the node,
// which is broken as well, closes the sessions. Barriers return cause. Stop is still to be called.
func (s *Scheduler) Break(cause error) {
	s.lock()
	defer s.unlock()
	if s.phase == phaseClosed {
		return
	}
	s.phase, s.err = phaseClosed, cause
	s.caller.fail(&stepvan.OpError{Op: "barrier", Err: cause})
	close(s.quit)
}
