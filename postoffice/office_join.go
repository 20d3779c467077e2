package postoffice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
)

// Join registers at the scheduler and waits until the cluster is complete and this
// node knows its peers. scheduler are the addresses to try; own are those at
// which peers reach this node (it must listen already; none for a worker). Call it once.
//
// It returns an error that names what is wrong: stepvan.ErrRemote with the
// scheduler's reason for refusing, stepvan.ErrPeerLost when the scheduler or a node
// is lost meanwhile, ctx's error with who is missing. After an error the office is over.
func (f *Office) Join(ctx context.Context, scheduler, own []string) error {
	request, err := f.application(own)
	if err != nil {
		return err
	}
	f.lock()
	if f.phase != officeIdle {
		defer f.unlock()
		return errs.Invalid("join: called before: make another Office")
	}
	f.phase, f.where = officeJoining, strings.Join(scheduler, ", ")
	f.unlock()
	for f.again(ctx) {
		err := f.reach(ctx, scheduler, request)
		if f.putOut(err) {
			continue
		}
		if err != nil {
			return f.failJoin(err)
		}
		if err := f.engine.Wait(ctx, &f.joined); err != nil {
			return f.failJoin(f.impatient(err))
		}
	}
	f.lock()
	defer f.unlock()
	if f.phase != officeJoined && f.cause != nil {
		return &stepvan.OpError{Op: "join", Peer: f.schedulerName(), Err: f.cause}
	}
	return nil
}

const (
	// mostTries is how often a node registers: a scheduler that many strangers visit may put it out before it has read
	// the registration. Between the tries there are pauses, of some 8 s together.
	mostTries  = 20
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// again reports whether Join has to try, for the first time or because the scheduler has put this node out. Then it
// waits a while.
func (f *Office) again(ctx context.Context) bool {
	tries, out := f.takeOut()
	if tries == 0 || !out {
		return tries == 0
	}
	pause := time.NewTimer(min(firstPause<<min(tries, 8), lastPause))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done(): // the next try says so
	case <-f.done:
	}
	return true
}

// takeOut returns how often the node has tried to register, and whether the scheduler has put it out since.
func (f *Office) takeOut() (tries int, out bool) {
	f.lock()
	defer f.unlock()
	if f.out {
		f.joined.Reset()
	}
	tries, out, f.out = f.tries, f.out, false
	return tries, out
}

// putOut reports whether err says that the scheduler has put this node out before it was registered, and another try may help.
func (f *Office) putOut(err error) bool {
	f.lock()
	defer f.unlock()
	f.tries++
	if !f.mayRetry(err) {
		return false
	}
	f.out = true
	return true
}

// mayRetry reports whether err is the loss of a session on which nothing came that forbids another try.
func (f *Office) mayRetry(err error) bool {
	var protocol *stepvan.ProtocolError
	return f.phase == officeJoining && !f.registered && f.tries < mostTries &&
		errors.Is(err, stepvan.ErrPeerLost) && !errors.As(err, &protocol)
}

// application is the message that registers this node.
func (f *Office) application(own []string) (frame, error) {
	o := &f.o
	b := joinBody{
		Role: o.Role, Rank: o.Rank, Instance: o.Instance, GroupSize: o.GroupSize,
		Host: o.Host, PID: o.PID, Addresses: own, Shared: o.Shared,
	}
	if err := b.check(); err != nil {
		return frame{}, errs.Invalid("join: %v", err)
	}
	fr := encode(opJoin, 0, b)
	if len(fr.body) > MaxMessage {
		return frame{}, errs.Invalid("join: addresses and settings take %d bytes, limit %d: lower DMLC_NUM_PORTS", len(fr.body), MaxMessage)
	}
	return fr, nil
}

// reach connects to the scheduler and sends the application.
func (f *Office) reach(ctx context.Context, scheduler []string, request frame) error {
	stop := f.complain()
	c, err := f.dial(ctx, scheduler)
	stop()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("does not answer: start it, or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT%s: %w", aside(f.o.Meeting), err)
	}
	if err != nil {
		return err
	}
	f.lock()
	defer f.unlock()
	if f.phase != officeJoining {
		f.later(func() { c.finish("stopped while joining") })
		return stepvan.ErrClosed
	}
	first := f.heard.IsZero()
	f.scheduler = c
	f.heard, f.ticked = time.Now(), time.Now()
	f.send(c, request)
	if first {
		go f.run()
	}
	return nil
}

// complain says every few seconds that the scheduler cannot be reached, until stopped.
func (f *Office) complain() (stop func()) {
	begun, end := time.Now(), make(chan struct{})
	go func() {
		t := time.NewTicker(f.o.WaitingEvery)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				f.o.Log.Info().Msgf("waiting %s for the scheduler at %s: it does not answer yet%s", seconds(now.Sub(begun)), f.where, aside(f.o.Meeting))
			case <-end:
				return
			}
		}
	}()
	return func() { close(end) }
}

// impatient makes the end of Join's context say who is missing.
func (f *Office) impatient(err error) error {
	f.lock()
	defer f.unlock()
	if f.waiting == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.waiting, err)
}

// failJoin ends the office after a start that failed.
func (f *Office) failJoin(err error) error {
	f.lock()
	defer f.unlock()
	f.end(err, "gave up joining")
	return &stepvan.OpError{Op: "join", Peer: f.schedulerName(), Err: err}
}

// begin takes in who this node is.
func (f *Office) begin(fr frame) error {
	var b startBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if f.phase != officeJoining || f.epoch != 0 || b.Self.Role != f.o.Role {
		return malformed(fr.op, "not expected")
	}
	b.Self.Host, b.Self.PID, b.Self.Incarnation = f.o.Host, f.o.PID, f.incarnation
	f.self, f.epoch, f.announce = b.Self, b.Epoch, b.Peers
	f.settle()
	return nil
}

// meet takes in a part of the list of peers.
func (f *Office) meet(fr frame) error {
	var b peersBody
	if err := decode(fr, &b); err != nil {
		return err
	}
	if f.phase != officeJoining || f.epoch == 0 || len(f.peers)+len(b.Nodes) > f.announce {
		return malformed(fr.op, "not expected")
	}
	f.peers = append(f.peers, b.Nodes...)
	f.settle()
	return nil
}

// settle ends the start when the list of peers is complete.
func (f *Office) settle() {
	if len(f.peers) < f.announce {
		return
	}
	f.peers = slices.DeleteFunc(f.peers, func(n Peer) bool { return n.ID == f.self.ID })
	slices.SortFunc(f.peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Rank, b.Rank))
	})
	for _, n := range f.peers {
		f.states[n.ID] = &standing{info: n}
	}
	f.identify(link.Identity{ID: f.self.ID, Incarnation: f.incarnation, Name: f.self.Name()})
	f.number(f.epoch)
	f.phase, f.waiting = officeJoined, ""
	f.o.Log.Info().Msgf("joined as %s, node %d, epoch %d, with %d peers", f.self.Name(), f.self.ID, f.epoch, len(f.peers))
	f.send(f.scheduler, frame{op: opReady})
	f.engine.Set(&f.joined)
}
