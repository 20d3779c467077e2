package postoffice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/sparing"
)

// Join registers at the scheduler and waits until the cluster is complete and this instance knows its peers. The list
// scheduler has the addresses to try. The list own has the addresses at which peers reach this instance, which must
// listen there already. A worker has no address. Call Join once.
//
// It returns an error that names what is wrong. [stepvan.ErrRemote] has the scheduler's reason for refusing.
// [stepvan.ErrPeerLost] means that the scheduler or an instance was lost meanwhile. The error of ctx comes with the
// names of the instances that are missing. After an error the office is over.
func (f *Office) Join(ctx context.Context, scheduler, own []string) error {
	request, err := f.o.joinMessage(own)
	if err != nil {
		return err
	}
	if err := f.beginJoin(scheduler); err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := f.register(ctx, scheduler, request)
		if err == nil {
			return nil
		}
		if n == mostTries || !f.waitToRetry(ctx, n, err) {
			return f.failJoin(err)
		}
	}
}

func (f *Office) beginJoin(scheduler []string) error {
	f.lock()
	defer f.unlock()
	if f.phase != officeIdle {
		return errs.Invalid("join: office: it was called before: make another Office")
	}
	f.phase, f.where = officeJoining, strings.Join(scheduler, ", ")
	return nil
}

const (
	// mostTries is how often an instance registers. A scheduler that has many visitors may end a session before it has
	// read the registration. The pauses between the tries take some 8 s together.
	mostTries  = 20
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// waitToRetry reports whether Join has to register again after n tries, and waits a while before that.
func (f *Office) waitToRetry(ctx context.Context, n int, err error) bool {
	f.lock()
	again := f.mayRetry(err)
	f.unlock()
	if !again {
		return false
	}
	select {
	case <-time.After(min(firstPause<<min(n, 8), lastPause)):
	case <-ctx.Done(): // the next try returns its error
	case <-f.done:
	}
	return true
}

// mayRetry reports whether err is the loss of a session on which nothing came that forbids another try.
func (f *Office) mayRetry(err error) bool {
	var protocol *stepvan.ProtocolError
	return f.phase == officeJoining && !f.answered && errors.Is(err, stepvan.ErrPeerLost) && !errors.As(err, &protocol)
}

// joinMessage is the message that registers an instance.
func (o *OfficeOptions) joinMessage(own []string) (frame, error) {
	b := joinBody{
		Role: o.Role, Rank: o.Rank, Instance: o.Instance, GroupSize: o.GroupSize,
		Host: o.Host, PID: o.PID, Addresses: own, Shared: o.Shared,
	}
	if err := b.check(); err != nil {
		return frame{}, errs.Invalid("join: %v", err)
	}
	fr := encode(opJoin, 0, b)
	if len(fr.body) > maxMessage {
		return frame{}, errs.Invalid("join: addresses and settings: too long (got %d bytes, want at most %d): lower DMLC_NUM_PORTS", len(fr.body), maxMessage)
	}
	return fr, nil
}

// register connects to the scheduler, sends the registration, and waits until this instance has joined.
func (f *Office) register(ctx context.Context, scheduler []string, request frame) error {
	stop := sparing.Every(f.o.WaitingEvery, func(waited time.Duration) {
		f.o.Log.Info().Msgf("waiting %s for the scheduler at %s: it does not answer yet%s", seconds(waited), f.where, inBrackets(f.o.Meeting))
	})
	c, err := f.ends.dial(ctx, scheduler)
	stop()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("does not answer: start it, or correct DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT%s: %w", inBrackets(f.o.Meeting), err)
	}
	if err != nil {
		return err
	}
	if err := f.sendJoin(c, request); err != nil {
		return err
	}
	err = f.engine.Wait(ctx, &f.joined)
	f.lock()
	defer f.unlock()
	if err != nil {
		return f.withMissing(err)
	}
	if f.phase != officeJoined && f.cause != nil {
		return f.cause
	}
	return f.early
}

func (f *Office) sendJoin(c conn, request frame) error {
	f.lock()
	defer f.unlock()
	if f.phase != officeJoining {
		f.later(func() { c.finish("stopped while joining") })
		return stepvan.ErrClosed
	}
	f.joined.Reset()
	first := f.signs.heard.IsZero()
	f.scheduler, f.early = c, nil
	f.signs.heard, f.attention.ticked = time.Now(), time.Now()
	f.send(c, request)
	if first {
		go f.run()
	}
	return nil
}

// withMissing adds the names of missing instances to the error of a context.
func (f *Office) withMissing(err error) error {
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

// finishJoin ends the start when the list of peers is complete.
func (f *Office) finishJoin() {
	if len(f.view.peers) < f.view.announced {
		return
	}
	f.view.complete(f.self.ID)
	f.ends.identify(link.Identity{ID: f.self.ID, Incarnation: f.self.Incarnation, Name: f.self.Name()})
	f.ends.number(f.view.epoch)
	f.phase, f.waiting = officeJoined, ""
	f.board.join()
	f.o.Log.Info().Msgf("joined as %s, node %d, epoch %d, with %d peers", f.self.Name(), f.self.ID, f.view.epoch, len(f.view.peers))
	f.send(f.scheduler, frame{op: opReady})
	f.engine.Set(&f.joined)
}
