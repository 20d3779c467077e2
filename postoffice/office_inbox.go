package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
)

// officeInbox is the service of an office: it does what the scheduler's messages say. Its handlers are called under the
// office's lock; their error is the scheduler's mistake and ends the office.
type officeInbox struct{ f *Office }

// opened implements service: an office serves only the session that it dials.
func (in *officeInbox) opened(conn) {}

// deliver implements service.
func (in *officeInbox) deliver(c conn, fr frame) {
	f := in.f
	f.lock()
	defer f.unlock()
	if c != f.scheduler || f.phase == officeOver {
		return
	}
	f.signs.heard, f.tries.answered = time.Now(), true
	if err := in.handle(fr); err != nil {
		f.end(err, "the scheduler's message cannot be understood")
	}
}

// lost implements service: the session to the scheduler ended.
func (in *officeInbox) lost(c conn, err error) {
	f := in.f
	f.lock()
	defer f.unlock()
	if c != f.scheduler {
		return
	}
	if f.mayRetry(err) {
		f.scheduler, f.tries.again = nil, true
		f.engine.Set(&f.joined)
		return
	}
	if errors.Is(err, link.ErrLeft) {
		err = fmt.Errorf("%w: the scheduler left: %s", stepvan.ErrPeerLost, printable(err.Error(), maxReason))
	}
	f.end(err, "")
}

func (in *officeInbox) handle(fr frame) error {
	f := in.f
	switch fr.op {
	case opHeartbeat:
	case opJoined:
		f.o.Log.Info().Msgf("registered at the %s as %s, waiting for the others", f.schedulerName(), f.self.Name())
	case opWaiting:
		return in.waiting(fr)
	case opRefused:
		return in.refused(fr)
	case opStart:
		return in.start(fr)
	case opPeers:
		return in.peers(fr)
	case opReleased:
		f.barriers.resolve(fr.request, nil)
	case opBroken:
		return in.broken(fr)
	case opGone:
		return in.gone(fr)
	case opStopped:
		f.engine.Set(&f.stopped)
	default:
		f.o.Log.Debug().Uint8("op", uint8(fr.op)).Msg("unknown control message of the scheduler ignored")
	}
	return nil
}

func (in *officeInbox) waiting(fr frame) error {
	var b waitingBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	in.f.waiting = b.Text
	in.f.o.Log.Info().Msg(b.Text)
	return nil
}

// refused ends the office: the scheduler does not, or not any more, accept this instance.
func (in *officeInbox) refused(fr frame) error {
	var b failure
	if err := decode(fr, &b); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: %s", b.sentinel(), b.Text)
	if b.Node != "" {
		cause = &stepvan.OpError{Op: "start", Peer: b.Node, Err: cause}
	}
	in.f.o.Log.Error().Msgf("refused by the %s: %s", in.f.schedulerName(), b.Text)
	in.f.end(cause, "refused")
	return nil
}

// start has the rank and the other data of this instance.
func (in *officeInbox) start(fr frame) error {
	f := in.f
	var b startBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if f.phase != officeJoining || f.view.epoch != 0 || b.Self.Role != f.o.Role {
		return malformed(fr.op, "not expected")
	}
	b.Self.Host, b.Self.PID, b.Self.Incarnation = f.o.Host, f.o.PID, f.self.Incarnation
	f.self, f.view.epoch, f.view.announced = b.Self, b.Epoch, b.Peers
	f.finishJoin()
	return nil
}

// peers is a part of the list of peers.
func (in *officeInbox) peers(fr frame) error {
	v := &in.f.view
	var b peersBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if in.f.phase != officeJoining || v.epoch == 0 || len(v.peers)+len(b.Nodes) > v.announced {
		return malformed(fr.op, "not expected")
	}
	v.peers = append(v.peers, b.Nodes...)
	in.f.finishJoin()
	return nil
}

func (in *officeInbox) broken(fr frame) error {
	var b failure
	if err := decode(fr, &b); err != nil {
		return err
	}
	in.f.barriers.resolve(fr.request, b.err("barrier", in.f.schedulerName()))
	return nil
}

// gone tells of instances that left or died.
func (in *officeInbox) gone(fr frame) error {
	f := in.f
	var b goneBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if b.Epoch > f.view.epoch {
		f.view.epoch = b.Epoch
		f.ends.number(b.Epoch)
	}
	for _, g := range b.Nodes {
		in.tellGone(f.view.lose(g), g)
	}
	return nil
}

// tellGone tells the program and the log that an instance left or died.
func (in *officeInbox) tellGone(info Peer, g goneNode) {
	f := in.f
	if g.Left {
		f.o.Log.Info().Uint64("epoch", f.view.epoch).Msgf("%s left: %s", info, g.Reason)
		f.later(func() { f.heardOf.tellLeft(info) })
		return
	}
	f.o.Log.Error().Uint64("epoch", f.view.epoch).Msgf("%s died: %s", info, g.Reason)
	err := fmt.Errorf("%w: %s died: %s", stepvan.ErrPeerLost, info, g.Reason)
	f.later(func() { f.heardOf.tellDead(info, err) })
}

// end makes the office over because of cause, and tells all waiting calls. Only the first cause counts.
func (f *Office) end(cause error, goodbye string) {
	if f.phase == officeOver {
		return
	}
	joined := f.phase == officeJoined // not while it stops: then the scheduler may close the session
	f.phase, f.cause = officeOver, cause
	f.barriers.fail(&stepvan.OpError{Op: "barrier", Peer: f.schedulerName(), Err: cause})
	if c := f.scheduler; c != nil && goodbye != "" {
		f.later(func() { c.finish(goodbye) })
	}
	if joined && !errors.Is(cause, stepvan.ErrClosed) {
		f.o.Log.Error().Msgf("%s lost: %v", f.schedulerName(), cause)
		loss := &stepvan.OpError{Op: "cluster", Peer: f.schedulerName(), Err: cause}
		f.later(func() { f.heardOf.tellDead(Peer{ID: SchedulerID, Role: stepvan.RoleScheduler}, loss) })
	}
	f.engine.Set(&f.joined)
	f.engine.Set(&f.stopped)
	close(f.done)
}
