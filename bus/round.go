package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/peer"
)

// round is a round of one direction of a leg that has begun. One goroutine drives it: that of a caller that waits for a
// transfer, or one of the agent. So a caller that waits drives the node itself, and no other goroutine has to wake it.
type round struct {
	l        *leg
	d        int // the direction
	number   uint64
	gathered bool          // the values of all groups have been reduced
	running  peer.Handle   // of a plan; the zero value where none runs
	within   time.Duration // how long a plan may be waited for; 0: until ctx ends
}

// begin begins the next round once all ranks of this agent have asked for it. It returns nil before that. Under mu.
func (l *leg) begin(d int) *round {
	c := &l.courses[d]
	if c.busy || l.failed != nil || min(l.asked(d, 0, 1), l.last(d)) <= c.begun {
		return nil
	}
	c.begun++
	c.busy = true
	l.rounds.Add(1)
	return &round{l: l, d: d, number: c.begun}
}

// advance has a goroutine drive the next round if it can begin. Under mu.
func (l *leg) advance(d int) {
	if r := l.begin(d); r != nil {
		l.a.spawn(r.run)
	}
}

// run drives a round until it is over.
func (r *round) run() {
	defer r.l.rounds.Done()
	r.end(r.drive(r.l.ctx))
}

// runFor drives a round on behalf of a caller, until it is over or ctx ends. A goroutine of the agent continues then.
func (r *round) runFor(ctx context.Context) {
	if ctx.Done() == nil {
		r.run()
		return
	}
	defer r.l.rounds.Done()
	both, cancel := context.WithCancel(r.l.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := r.drive(both)
	if err != nil && both.Err() != nil && r.running != (peer.Handle{}) && r.handOver() {
		return
	}
	r.end(err)
}

// runWithin drives a round for a short time on behalf of a caller that has other work. A goroutine of the agent
// continues then. It also does what takes longer: a round that reduces.
func (r *round) runWithin(d time.Duration) {
	defer r.l.rounds.Done()
	if r.l.courses[r.d].gather != nil && r.handOver() {
		return
	}
	r.within = d
	err := r.drive(r.l.ctx)
	r.within = 0
	if errors.Is(err, context.DeadlineExceeded) && r.handOver() {
		return
	}
	r.end(err)
}

// handOver has a goroutine of the agent drive on, unless the leg has failed.
func (r *round) handOver() bool {
	a := r.l.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.l.failed != nil {
		return false
	}
	r.l.rounds.Add(1)
	a.spawn(r.run)
	return true
}

// drive runs the plans of a round. After the end of ctx it may be called again.
func (r *round) drive(ctx context.Context) error {
	c := &r.l.courses[r.d]
	if c.gather != nil && !r.gathered {
		if err := r.follow(ctx, c.gather); err != nil {
			return err
		}
		for i := range c.sums {
			if err := c.sums[i].reduce(); err != nil {
				return err
			}
		}
	}
	r.gathered = true
	return r.follow(ctx, c.ship)
}

// follow begins a plan that does not run, and waits for its end.
func (r *round) follow(ctx context.Context, p *peer.Plan) (err error) {
	if r.running == (peer.Handle{}) {
		if r.running, err = p.Begin(r.number); err != nil {
			return err
		}
	}
	if r.within > 0 {
		err = r.running.WaitFor(r.within)
	} else {
		err = r.running.Wait(ctx)
	}
	if err != nil {
		return err
	}
	r.running = peer.Handle{}
	return nil
}

// end completes the transfers of a round, and has the next one begin.
func (r *round) end(err error) {
	for _, w := range r.finish(err) {
		w.tell()
	}
}

// finish notes that a round is over. It returns the transfers that have ended with it.
func (r *round) finish(err error) (over []*pending) {
	l := r.l
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	c := &l.courses[r.d]
	c.busy = false
	if err != nil {
		l.fail(fmt.Errorf("round %d from %s to %s: %w", r.number, l.r.sides[r.d].name, l.r.sides[1-r.d].name, cmp.Or(l.leaving, err)), everybody)
		return nil
	}
	c.done = r.number
	rest := c.waiters[:0]
	for _, w := range c.waiters {
		switch {
		case w.round > r.number:
			rest = append(rest, w)
		case w.transfer.end(nil):
			over = append(over, w.transfer)
		}
	}
	clear(c.waiters[len(rest):])
	c.waiters = rest
	l.advance(r.d)
	l.settle()
	return over
}
