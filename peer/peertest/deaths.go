package peertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
)

// noticeTime is how long it may take from a death to the errors that name it.
const noticeTime = 2 * time.Second

// dies ends the last member after a random time. It returns true at the others.
func (m *member) dies(most time.Duration) (lives bool) {
	pause := time.Duration(m.rng.Int64N(int64(most)))
	if m.rank == m.size-1 {
		time.Sleep(pause)
		m.die()
		return false
	}
	return true
}

// names checks that an error names the member that died.
func (m *member) names(err error) {
	dead := fmt.Sprint("peer ", m.size-1)
	m.want(strings.Contains(err.Error(), dead) || errors.Is(err, stepvan.ErrRemote), "the error does not name %s: %v", dead, err)
}

func deathInARun(m *member) {
	x := newExchange(m, []int{0, 1, 2}, 4000, 20, []where{heap, file}[m.rng.IntN(2)], []where{heap, file}[m.rng.IntN(2)])
	x.make("weights")
	x.write(1)
	h, err := x.plan.Begin(1)
	m.wait(h, err)
	m.want(x.plan.Version() == 1 && x.whole(1), "version 1 is not whole, or not served")
	m.waitForAll()
	last, dead := dying{x.plan, x.write, x.whole, m.names}.run(m)
	if dead {
		return
	}
	if _, err := x.plan.Begin(last + 9); err == nil {
		m.fail("a plan runs after the death of a peer")
	}
	m.must(x.plan.Close(m.ctx), "close a plan")
	y := newExchange(m, []int{0, 1}, 100, 20, file, heap)
	y.make("weights")
	y.run(1)
	m.must(y.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}

// dying is a plan, whose version 1 is whole, and which runs until the last member dies.
type dying struct {
	plan  Plan
	write func(version uint64)
	whole func(version uint64) bool
	names func(error) // looks at the error of a run that has ended by the death
}

// run returns the last version that is whole, and whether this member is the dead one. Nobody serves a mixture, and the
// others hear of the death in time.
func (d dying) run(m *member) (last uint64, dead bool) {
	if m.rank == m.size-1 {
		go func() { m.dies(3 * time.Millisecond) }()
	}
	last = 1
	for version := uint64(2); ; version++ {
		m.must(m.ctx.Err(), "nobody dies")
		d.write(version)
		h, err := d.plan.Begin(version)
		if err == nil {
			begun := time.Now()
			err = h.Wait(m.ctx)
			m.want(err == nil || time.Since(begun) < noticeTime+time.Second, "the death was told after %v", time.Since(begun))
		}
		v := d.plan.Version()
		m.want(v == 0 || v == version || v == last, "version %d is served, want 0, %d or %d", v, version, last)
		m.want(v == 0 || d.whole(v), "version %d is served, and is not whole", v)
		m.want(err != nil || v == version, "a run of version %d ends well, and version %d is served", version, v)
		switch {
		case err == nil:
			last = version
		case m.rank == m.size-1:
			<-m.dead
			m.must(d.plan.Close(m.ctx), "close a plan")
			return last, true
		default:
			d.names(err)
			return last, false
		}
	}
}

func deathInADraft(m *member) {
	m.must(m.peer.Connect(m.ctx, m.ranks(m.rank)...), "connect")
	m.waitForAll()
	x := newExchange(m, []int{0, 1, 2}, 50, 20, file, file)
	if m.rank == m.size-1 {
		go func() { m.dies(time.Millisecond) }()
	}
	pl, err := m.peer.Plan(m.ctx, "draft", x.sends, x.recvs)
	if m.rank == m.size-1 {
		<-m.dead
		if err == nil {
			m.must(pl.Close(m.ctx), "close a plan")
		}
		return
	}
	begun := time.Now()
	if err == nil {
		var h Handle
		if h, err = pl.Begin(1); err == nil {
			err = h.Wait(m.ctx)
		}
		m.want(err != nil, "a plan runs with a dead peer")
		m.must(pl.Close(m.ctx), "close a plan")
	}
	m.want(time.Since(begun) < noticeTime+time.Second, "the death was told after %v", time.Since(begun))
	m.names(err)
	y := newExchange(m, []int{0, 1}, 50, 20, heap, file)
	y.make("another draft")
	y.run(1)
	m.must(y.plan.Close(m.ctx), "close a plan")
	m.waitForAll()
}

func deathBesideTransfers(m *member) {
	m.must(m.peer.Connect(m.ctx, m.ranks(m.rank)...), "connect")
	m.waitForAll()
	if !m.dies(time.Millisecond) {
		return
	}
	lost := m.empty(file, 1<<16)
	h, err := m.peer.Recv(m.all(lost), stepvan.Rank(m.size-1), 1)
	begun := time.Now()
	m.names(m.refused(h, err, stepvan.ErrPeerLost, "a transfer with a dead peer"))
	m.want(time.Since(begun) < noticeTime, "the death was told after %v", time.Since(begun))
	x := m.empty(heap, 1<<16)
	if m.rank == 0 {
		fill(x, 1)
		m.wait(m.peer.Send(m.all(x), 1, 1))
	} else {
		m.wait(m.peer.Recv(m.all(x), 0, 1))
		m.want(is(x, 1), "wrong elements beside a death")
	}
	m.waitForAll()
}
