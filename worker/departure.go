package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
)

// departures are exchanges that wait for an accelerator, and what comes behind them. Worker.mu guards the queue.
type departures struct {
	w *Worker
	queue[activeExchange]
}

// queue has work for a goroutine, which lives as long as there is some. Worker.mu guards it.
type queue[T any] struct{ list []*T }

// add reports whether the caller is to start the goroutine.
func (q *queue[T]) add(x *T) (start bool) {
	q.list = append(q.list, x)
	return len(q.list) == 1
}

// done removes what is first, and returns what is next or nil.
func (q *queue[T]) done() *T {
	q.list[0] = nil
	if q.list = q.list[1:]; len(q.list) == 0 {
		q.list = nil
		return nil
	}
	return q.list[0]
}

// start has x sent when its accelerator is ready, and behind all that depart already. s is nil for an exchange
// that only waits behind others. Under Worker.mu.
func (d *departures) start(x *activeExchange, s *staged) {
	x.staged = s
	if s != nil {
		x.record.Value.arrival = s.arrival
	}
	x.state = x.state.after(depart)
	d.w.exchanges.tidy()
	d.w.results.Recycle()
	if d.add(x) {
		go d.send(x)
	}
}

// send sends exchanges in the order of their calls, until none is left.
func (d *departures) send(x *activeExchange) {
	for x != nil {
		planned, err := d.prepare(x)
		if err == nil {
			err = d.sendPatiently(x)
		}
		x = d.end(x, planned, err)
		d.w.fences.send()
	}
	d.closeStager()
}

// closeStager closes what a closed worker needs no more. Close calls it, and so do the goroutines that end later.
func (d *departures) closeStager() {
	w := d.w
	w.mu.Lock()
	over := w.closed && len(w.staging.departures.list)+len(w.staging.landings.list) == 0
	w.mu.Unlock()
	if !over {
		return
	}
	if err := w.staging.stager.Close(); err != nil {
		w.opt.Log.Warn().Err(err).Msg("an accelerator did not give up the streams and the memory of this worker")
	}
}

// prepare has the pushes of x copied to memory of the host, and plans the requests.
func (d *departures) prepare(x *activeExchange) (planned bool, err error) {
	giveUp := func() error { return d.mustEnd(x) }
	if x.staged == nil {
		if err := giveUp(); err != nil {
			return false, err
		}
		return d.plan(x)
	}
	if err := d.awaitStream(x, giveUp); err != nil {
		return false, err
	}
	for d.chooseWay(x); !planned && err == nil; {
		if err = d.copyOut(x, giveUp); err == nil {
			err = giveUp()
		}
		if err == nil {
			planned, err = d.plan(x)
		}
	}
	return planned, err
}

// chooseWay decides whether a device takes the pushes from the accelerator.
func (d *departures) chooseWay(x *activeExchange) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	s := x.staged
	s.holdPushes(x, w.lender.memory.Registry)
	if s.direct.pushes = x.canWritePushes(); !s.direct.pushes {
		s.direct.release(w.lender.memory.Registry)
	}
}

// plan has memory of the host stand for tensors of the accelerator, and plans the requests. It reports false where a
// chunk has gone that a device was to write from the accelerator. The pushes are to be copied then.
func (d *departures) plan(x *activeExchange) (planned bool, err error) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := x.staged; s != nil {
		if s.direct.pushes && !x.canWritePushes() {
			s.direct.release(w.lender.memory.Registry)
			s.direct.pushes = false
			s.dropCopies(w.lender.pool)
			return false, nil
		}
		s.step = stepSent
		if err := s.substitute(x); err != nil {
			return false, err
		}
	}
	x.plan(&w.lender, w.opt.CheckBorrowed)
	return true, nil
}

// mustEnd returns why x cannot be sent any more, or nil.
func (d *departures) mustEnd(x *activeExchange) error {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return errClosed
	case w.failed != nil:
		return w.failed
	}
	for _, r := range x.requests {
		if r.server.lost != nil {
			return r.server.lost
		}
	}
	return nil
}

// awaitStream waits for the stream of the program.
func (d *departures) awaitStream(x *activeExchange, giveUp func() error) error {
	s := x.staged
	err := device.Await(s.ready, giveUp)
	s.closeReady()
	if err != nil {
		return stagedError(fmt.Sprintf("%s: the work on stream %#x of %s before the exchange has failed", x.stagedName(), s.stream.Handle, s.device), err)
	}
	return nil
}

// copyOut copies the pushes out of the accelerator, unless a device takes them from there.
func (d *departures) copyOut(x *activeExchange, giveUp func() error) error {
	s := x.staged
	if err := s.reserve(x, d.w, giveUp); err != nil {
		return stagedError(x.stagedName(), err)
	}
	d.setStep(s, stepCopyOut)
	s.listMoves(x)
	if len(s.out) == 0 {
		return nil
	}
	if err := d.w.staging.stager.Out(s.device, s.out); err != nil {
		return stagedError(fmt.Sprintf("%s: the copy out of %s has failed", x.stagedName(), s.device), err)
	}
	return nil
}

func (d *departures) setStep(s *staged, step stagedStep) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	s.step = step
}

// sendPause is the time between two attempts to send while a queue is full.
const sendPause = 50 * time.Microsecond

// sendPatiently sends x, and waits for room. The handle is with the program already.
func (d *departures) sendPatiently(x *activeExchange) error {
	for {
		err := x.copySaved()
		if err == nil {
			err = d.w.link.SendAll(x.sessions, x.messages)
		}
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			return err
		}
		if err := d.mustEnd(x); err != nil {
			return err
		}
		time.Sleep(sendPause)
	}
}

// end notes that x is sent, or fails it. It returns the next exchange, or nil.
func (d *departures) end(x *activeExchange, planned bool, err error) *activeExchange {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	next := d.done()
	for _, r := range x.requests {
		r.endWrites(&w.fences)
		if planned && err != nil { // the link has not taken the request
			r.on(acknowledge)
			r.on(answer)
		}
	}
	if err != nil {
		x.fail(x.refusal(err))
	}
	if planned {
		x.accepted(w.failed)
	}
	w.advance(x)
	return next
}
