package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// opened implements service: an office serves only the session that it dials.
func (f *Office) opened(conn) {}

// deliver implements service.
func (f *Office) deliver(c conn, fr frame) {
	f.lock()
	defer f.unlock()
	if c != f.scheduler || f.phase == officeOver {
		return
	}
	f.heard, f.registered = time.Now(), true
	if err := f.obey(fr); err != nil {
		f.end(err, "the scheduler's message cannot be understood")
	}
}

// obey does what a message of the scheduler says.
func (f *Office) obey(fr frame) error {
	switch fr.op {
	case opHeartbeat:
	case opJoined:
		f.o.Log.Info().Msgf("registered at the %s as %s, waiting for the others", f.schedulerName(), f.self.Name())
	case opWaiting:
		return f.remark(fr)
	case opRefused:
		return f.refused(fr)
	case opStart:
		return f.begin(fr)
	case opPeers:
		return f.meet(fr)
	case opReleased:
		f.caller.resolve(fr.request, nil)
	case opBroken:
		return f.broken(fr)
	case opGone:
		return f.gone(fr)
	case opStopped:
		f.engine.Set(&f.stopped)
	default:
		f.o.Log.Debug().Uint8("op", uint8(fr.op)).Msg("unknown control message of the scheduler ignored")
	}
	return nil
}

func (f *Office) remark(fr frame) error {
	var b waitingBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	f.waiting = b.Text
	f.o.Log.Info().Msg(b.Text)
	return nil
}

// refused is the end: this node is not, or no longer, a member.
func (f *Office) refused(fr frame) error {
	var b failure
	if err := decode(fr, &b); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: %s", b.sentinel(), b.Text)
	if b.Node != "" {
		cause = &stepvan.OpError{Op: "start", Peer: b.Node, Err: cause}
	}
	f.o.Log.Error().Msgf("refused by the %s: %s", f.schedulerName(), b.Text)
	f.end(cause, "refused")
	return nil
}

func (f *Office) broken(fr frame) error {
	var b failure
	if err := decode(fr, &b); err != nil {
		return err
	}
	f.caller.resolve(fr.request, b.err("barrier", f.schedulerName()))
	return nil
}

// lost implements service: the session to the scheduler ended.
func (f *Office) lost(c conn, err error) {
	f.lock()
	defer f.unlock()
	if c != f.scheduler {
		return
	}
	if f.mayRetry(err) {
		f.scheduler, f.out = nil, true
		f.engine.Set(&f.joined)
		return
	}
	if errors.Is(err, link.ErrLeft) {
		err = fmt.Errorf("%w: the scheduler left: %s", stepvan.ErrPeerLost, printable(err.Error(), maxReason))
	}
	f.end(err, "")
}

// end makes the office over because of cause, and everybody who waits learn it. The first one counts.
func (f *Office) end(cause error, goodbye string) {
	if f.phase == officeOver {
		return
	}
	joined := f.phase == officeJoined
	f.phase, f.cause = officeOver, cause
	f.caller.fail(&stepvan.OpError{Op: "barrier", Peer: f.schedulerName(), Err: cause})
	if c := f.scheduler; c != nil && goodbye != "" {
		f.later(func() { c.finish(goodbye) })
	}
	if joined && !f.stopping && !errors.Is(cause, stepvan.ErrClosed) {
		f.o.Log.Error().Msgf("%s lost: %v", f.schedulerName(), cause)
		f.tellDead(Peer{ID: SchedulerID, Role: stepvan.RoleScheduler}, &stepvan.OpError{Op: "cluster", Peer: f.schedulerName(), Err: cause})
	}
	f.engine.Set(&f.joined)
	f.engine.Set(&f.stopped)
	close(f.done)
}
