package postoffice

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/text"
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
	f.signs.heard, f.answered = time.Now(), true
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
		f.scheduler, f.early = nil, err
		f.engine.Set(&f.joined)
		return
	}
	if errors.Is(err, link.ErrLeft) {
		err = fmt.Errorf("%w: the scheduler left: %s", stepvan.ErrPeerLost, text.Line(err.Error(), maxReason))
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
		return receive(fr, in.waiting)
	case opRefused:
		return receive(fr, in.refused)
	case opStart:
		return receive(fr, in.start)
	case opPeers:
		return receive(fr, in.peers)
	case opReleased:
		f.barriers.resolve(fr.request, nil)
	case opBroken:
		return f.barriers.broken(fr, f.schedulerName())
	case opGone:
		return receive(fr, in.gone)
	case opPosted, opNotPosted, opBoard:
		return f.board.deliver(fr)
	case opStopped:
		f.engine.Set(&f.stopped)
	default:
		f.o.Log.Debug().Uint8("op", uint8(fr.op)).Msg("unknown control message of the scheduler ignored")
	}
	return nil
}

func (in *officeInbox) waiting(b *waitingBody) error {
	in.f.waiting = b.Text
	in.f.o.Log.Info().Msg(b.Text)
	return nil
}

// refused ends the office: the scheduler does not, or not any more, accept this instance.
func (in *officeInbox) refused(b *failure) error {
	cause := b.cause()
	if b.Node != "" {
		cause = b.err("start", "")
	}
	in.f.o.Log.Error().Msgf("refused by the %s: %s", in.f.schedulerName(), b.Text)
	in.f.end(cause, "refused")
	return nil
}

// start has the rank and the other data of this instance.
func (in *officeInbox) start(b *startBody) error {
	f := in.f
	if f.phase != officeJoining || f.view.epoch != 0 || b.Self.Role != f.o.Role {
		return malformed(opStart, "not expected")
	}
	b.Self.Host, b.Self.PID, b.Self.Incarnation = f.o.Host, f.o.PID, f.self.Incarnation
	f.self, f.view.epoch, f.view.announced = b.Self, b.Epoch, b.Peers
	f.finishJoin()
	return nil
}

// peers is a part of the list of peers.
func (in *officeInbox) peers(b *peersBody) error {
	v := &in.f.view
	if in.f.phase != officeJoining || v.epoch == 0 || len(v.peers)+len(b.Nodes) > v.announced {
		return malformed(opPeers, "not expected")
	}
	v.peers = append(v.peers, b.Nodes...)
	in.f.finishJoin()
	return nil
}

// gone tells the program and the log of instances that left or died.
func (in *officeInbox) gone(b *goneBody) error {
	f := in.f
	if b.Epoch > f.view.epoch {
		f.view.epoch = b.Epoch
		f.ends.number(b.Epoch)
	}
	for _, g := range b.Nodes {
		event, peer := f.o.Log.Info(), f.view.lose(g)
		if g.Left {
			f.tellLoss(f.o.OnLeft, peer, fmt.Errorf("%w: %s: %s", link.ErrLeft, peer, g.Reason))
		} else {
			event = f.o.Log.Error()
			f.tellLoss(f.o.OnDead, peer, fmt.Errorf("%w: %s %s: %s", stepvan.ErrPeerLost, peer, g.verb(), g.Reason))
		}
		event.Uint64("epoch", f.view.epoch).Msgf("%s %s: %s", peer, g.verb(), g.Reason)
	}
	return nil
}

// end makes the office over because of cause, and tells all waiting calls. Only the first cause counts.
func (f *Office) end(cause error, goodbye string) {
	if f.phase == officeOver {
		return
	}
	joined := f.phase == officeJoined // not while it stops: then the scheduler may close the session
	f.phase, f.cause = officeOver, cause
	f.barriers.fail(&stepvan.OpError{Op: "barrier", Peer: f.schedulerName(), Err: cause})
	f.board.fail(&stepvan.OpError{Op: "board", Peer: f.schedulerName(), Err: cause})
	if c := f.scheduler; c != nil && goodbye != "" {
		f.later(func() { c.finish(goodbye) })
	}
	if joined && !errors.Is(cause, stepvan.ErrClosed) {
		f.o.Log.Error().Msgf("%s lost: %v", f.schedulerName(), cause)
		f.tellLoss(f.o.OnDead, Peer{ID: SchedulerID, Role: stepvan.RoleScheduler}, &stepvan.OpError{Op: "cluster", Peer: f.schedulerName(), Err: cause})
	}
	f.engine.Set(&f.joined)
	f.engine.Set(&f.stopped)
	close(f.done)
}

// tellLoss calls tell once the lock is released, for one loss at a time.
func (f *Office) tellLoss(tell func(Peer, error), p Peer, err error) {
	if tell == nil {
		return
	}
	f.later(func() {
		f.lossMu.Lock()
		defer f.lossMu.Unlock()
		tell(p, err)
	})
}
