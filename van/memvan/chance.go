package memvan

import (
	"math/rand/v2"
	"time"

	"github.com/stepvan/stepvan"
)

// random is the seeded source of everything that happens by chance on the way from e.
func (e *endpoint) random() *rand.Rand {
	if e.faults.dice == nil {
		e.faults.dice = rand.New(rand.NewPCG(e.van.net.opt.Seed, e.faults.seed))
	}
	return e.faults.dice
}

// schedule says when something that e sends at this moment arrives: never before what it sent earlier.
func (e *endpoint) schedule() time.Time {
	o := &e.van.net.opt
	if o.Delay == 0 && o.Jitter == 0 {
		return time.Time{}
	}
	due := time.Now().Add(o.Delay)
	if o.Jitter > 0 {
		due = due.Add(time.Duration(e.random().Int64N(int64(o.Jitter) + 1)))
	}
	if due.Before(e.faults.lastDue) {
		due = e.faults.lastDue
	}
	e.faults.lastDue = due
	return due
}

// arrived reports whether something that was due then is there; if not, a timer will look again.
func (e *endpoint) arrived(due time.Time) bool {
	if due.IsZero() || !time.Now().Before(due) {
		return true
	}
	e.arm(due)
	return false
}

func (e *endpoint) arm(due time.Time) {
	if e.faults.armed {
		return
	}
	e.faults.armed = true
	d := max(0, time.Until(due))
	if e.faults.timer == nil {
		e.faults.timer = time.AfterFunc(d, e.alarm)
	} else {
		e.faults.timer.Reset(d)
	}
}

func (e *endpoint) disarm() {
	if e.faults.timer != nil {
		e.faults.timer.Stop()
		e.faults.armed = false
	}
}

func (e *endpoint) alarm() {
	e.conn.mu.Lock()
	e.faults.armed = false
	e.ready()
	e.conn.unlock()
}

// loseByChance loses the connection with the probability that the network has for each message.
func (e *endpoint) loseByChance() {
	e.conn.mu.Lock()
	hit := e.random().Float64() < e.van.net.opt.LossRate
	e.conn.mu.Unlock()
	if hit {
		e.conn.sever()
	}
}

// sever loses the connection, and a random part of what was on its way.
func (c *conn) sever() {
	var f [2]ending
	for i := range c.ends {
		f[i] = ending{shred: true, reason: c.ends[i].fault("receive", stepvan.ErrPeerLost)}
	}
	c.end(f)
}
