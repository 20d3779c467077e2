package memvan

import (
	"math/rand/v2"
	"time"

	"github.com/stepvan/stepvan"
)

// random is the seeded source of everything that happens by chance on the way from e.
func (f *faults) random() *rand.Rand {
	if f.dice == nil {
		f.dice = rand.New(rand.NewPCG(f.e.van.net.opt.Seed, f.seed))
	}
	return f.dice
}

// schedule says when something that e sends at this moment arrives: never before what it sent earlier.
func (f *faults) schedule() time.Time {
	o := &f.e.van.net.opt
	if o.Delay == 0 && o.Jitter == 0 {
		return time.Time{}
	}
	due := time.Now().Add(o.Delay)
	if o.Jitter > 0 {
		due = due.Add(time.Duration(f.random().Int64N(int64(o.Jitter) + 1)))
	}
	if due.Before(f.lastDue) {
		due = f.lastDue
	}
	f.lastDue = due
	return due
}

// arrived reports whether something that was due then is there; if not, a timer will look again.
func (f *faults) arrived(due time.Time) bool {
	if due.IsZero() || !time.Now().Before(due) {
		return true
	}
	f.arm(due)
	return false
}

func (f *faults) arm(due time.Time) {
	if f.armed {
		return
	}
	f.armed = true
	d := max(0, time.Until(due))
	if f.timer == nil {
		f.timer = time.AfterFunc(d, f.alarm)
	} else {
		f.timer.Reset(d)
	}
}

func (f *faults) disarm() {
	if f.timer != nil {
		f.timer.Stop()
		f.armed = false
	}
}

func (f *faults) alarm() {
	f.e.conn.mu.Lock()
	f.armed = false
	f.e.ready()
	f.e.conn.unlock()
}

// loseByChance loses the connection with the probability that the network has for each message.
func (e *endpoint) loseByChance() {
	e.conn.mu.Lock()
	hit := e.faults.random().Float64() < e.van.net.opt.LossRate
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
