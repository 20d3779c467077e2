package vantest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// probe is one run of one case.
type probe struct {
	f        Factory
	clause   int
	name     string
	deadline time.Time
	ctx      context.Context
	cancel   context.CancelFunc
	rng      *rand.Rand // of the case's goroutine
	nodes    []*node
	salts    uint64
	bell     chan struct{} // rung by vans without FD, and by spawned goroutines
	alarm    alarm         // the same for sleeps on descriptors
	atEnd    []func()

	spawned  sync.WaitGroup
	parallel atomic.Bool // goroutines were spawned
	found    atomic.Pointer[verdict]
}

// verdict is how a case ends at the first violation.
type verdict struct {
	clause int
	text   string
}

func newProbe(f Factory, clause int, name string) *probe {
	p := &probe{f: f, clause: clause, name: name, deadline: time.Now().Add(f.Deadline), rng: rand.New(rand.NewPCG(uint64(clause), 3)), bell: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithDeadline(context.Background(), p.deadline)
	return p
}

// fail ends the case: the van violates the clause. It must run on a goroutine of the case or of spawn.
func (p *probe) fail(clause int, format string, args ...any) { p.failAt(2, clause, format, args...) }

func (p *probe) failAt(depth, clause int, format string, args ...any) {
	_, file, line, _ := runtime.Caller(depth)
	panic(verdict{clause, fmt.Sprintf(format, args...) + fmt.Sprintf(" [%s:%d]", filepath.Base(file), line)})
}

// must fails the case's own clause when err is not nil.
func (p *probe) must(err error, doing string) {
	if err != nil {
		p.failAt(2, p.clause, "%s: %v", doing, err)
	}
}

func (p *probe) want(ok bool, format string, args ...any) {
	if !ok {
		p.failAt(2, p.clause, format, args...)
	}
}

// spawn runs fn beside the case. fn may fail; it must end when p.ctx does.
func (p *probe) spawn(fn func()) {
	p.parallel.Store(true)
	p.spawned.Add(1)
	go func() {
		defer p.spawned.Done()
		defer p.ring()
		defer func() {
			p.note(recover())
		}()
		fn()
	}()
}

// note keeps what a recovered goroutine has found for the case's own goroutine.
func (p *probe) note(r any) {
	switch r := r.(type) {
	case nil:
	case verdict:
		p.found.CompareAndSwap(nil, &r)
	default:
		panic(r)
	}
}

// call runs fn, which may block, beside the case, and polls until it has returned.
func (p *probe) call(what string, fn func()) {
	var done atomic.Bool
	p.spawn(func() {
		fn()
		done.Store(true)
	})
	p.until(what, done.Load)
}

func (p *probe) ring() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
	p.alarm.ring()
}

// mostTurns bounds a wait on a clock that does not move.
const mostTurns = 3_000

// until polls all vans until done, or fails the case's clause: what did not happen.
func (p *probe) until(what string, done func() bool) {
	began := time.Now()
	for turn := 0; ; turn++ {
		p.relay()
		if done() {
			return
		}
		if turn == mostTurns && time.Now().Equal(began) { // fake time stands still while anybody is busy
			p.fail(p.clause, "waited in vain for %s%s", what, p.state())
		}
		if p.poll(turn%2 == 1) > 0 || turn%2 == 0 {
			continue
		}
		if done() {
			return
		}
		left := time.Until(p.deadline)
		if left <= 0 {
			p.fail(p.clause, "waited in vain for %s%s", what, p.state())
		}
		p.idle(left)
	}
}

// relay ends the case when a spawned goroutine has found something.
func (p *probe) relay() {
	if v := p.found.Load(); v != nil {
		panic(*v)
	}
}

// poll polls every van that no goroutine of its own polls.
func (p *probe) poll(all bool) (n int) {
	for _, v := range p.nodes {
		if !v.detached.Load() {
			n += v.poll(all)
		}
	}
	return n
}

// quiet polls until nothing moves any more, as far as one can see from here.
func (p *probe) quiet() {
	for still := 0; still < 20; still++ {
		p.relay()
		if p.poll(true) > 0 {
			still = 0
		}
		runtime.Gosched()
	}
}

// idle sleeps until a van may have something, as a program would.
func (p *probe) idle(limit time.Duration) {
	var fds []unix.PollFd
	for _, v := range p.nodes {
		if v.closed.Load() {
			limit = min(limit, 20*time.Millisecond) // its descriptor is gone
		}
		if !v.detached.Load() && !v.closed.Load() && !v.van.Arm() {
			return
		}
		if fd := v.van.FD(); fd >= 0 && !v.closed.Load() && !v.detached.Load() {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	if len(fds) > 0 {
		if p.parallel.Load() {
			limit = min(limit, 20*time.Millisecond) // what a spawned goroutine does before it ends rings nothing
			fds = p.alarm.listen(fds)
		}
		_, _ = unix.Poll(fds, int(limit/time.Millisecond)+1)
		p.alarm.answer()
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.bell:
	case <-t.C:
	}
}

// state describes all endpoints, for the text of a failure.
func (p *probe) state() (s string) {
	for i, n := range p.nodes {
		s += n.describe(i)
	}
	return s
}

// finish ends a case that found nothing. It closes every van, which must hand out the
// completions that are due, and nothing else.
func (p *probe) finish() {
	p.join()
	for _, n := range p.nodes {
		n.close()
	}
	p.untilClause(1, "the completions of all accepted operations after Close", func() bool {
		for _, n := range p.nodes {
			if n.outstanding() > 0 {
				return false
			}
		}
		return true
	})
	p.quiet()
	for _, n := range p.nodes {
		n.releaseAll()
	}
	p.quiet()
	p.relay()
}

func (p *probe) untilClause(clause int, what string, done func() bool) {
	own := p.clause
	p.clause = clause
	defer func() { p.clause = own }()
	p.until(what, done)
}

// join polls until all spawned goroutines have ended.
func (p *probe) join() {
	if !p.parallel.Load() {
		return
	}
	var done atomic.Bool
	go func() {
		p.spawned.Wait()
		done.Store(true)
		p.ring()
	}()
	p.until("the goroutines of the case", done.Load)
}

// cleanUp frees everything, whatever became of the case.
func (p *probe) cleanUp() {
	defer p.alarm.close()
	p.cancel()
	for _, n := range p.nodes {
		_ = n.van.Close()
	}
	for _, fn := range p.atEnd {
		fn()
	}
	p.spawned.Wait()
}
