package rdma

import (
	"context"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
)

// connecting connects a further path of a connection, until it stands or the connection ends. The side that has dialled
// does so. A path whose rail was lost is connected again once the port has been up for PathOptions.ReturnTime.
type connecting struct {
	e      *endpoint
	path   int
	device *device   // that had the rail which was lost, or nil
	port   int       // of device
	since  time.Time // the port is up; the zero value while it is not
	again  bool      // it was tried before
}

// looks is how often a port is looked at within PathOptions.ReturnTime.
const looks = 4

// connectAgain has the path of a lost rail connected again.
func connectAgain(r *rail) {
	if len(r.e.routes) > r.index {
		c := &connecting{e: r.e, path: r.index, device: r.conn.device, port: r.conn.port, again: true}
		c.wait()
	}
}

func (c *connecting) wait() { time.AfterFunc(c.e.v.opt.Paths.ReturnTime/looks, c.try) }

// try connects if the port has been up for long enough, and else waits on. It ends with the endpoint.
func (c *connecting) try() {
	v := c.e.v
	if c.e.state.Load()&(failed|closed) != 0 || !v.members.beginCall() {
		return
	}
	defer v.members.calls.Done()
	if !c.isUp() || !c.connect() {
		c.wait()
	}
}

// isUp reports whether the port has been up for long enough.
func (c *connecting) isUp() bool {
	if c.device == nil {
		return true
	}
	a, err := c.device.device.Port(c.port)
	switch {
	case err != nil || a.State != verbs.PortActive:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = time.Now()
	default:
		return time.Since(c.since) >= c.e.v.opt.Paths.ReturnTime
	}
	return false
}

// connect reports whether the rail stands. If not, the port counts as down.
func (c *connecting) connect() bool {
	v, e, route := c.e.v, c.e, c.e.routes[c.path]
	ctx, cancel := context.WithTimeout(v.ctx, v.opt.PendingTime)
	defer cancel()
	own := greeting{path: c.path, paths: e.paths, token: e.token}
	if c.again {
		own.token |= uint64(e.attempts.Add(1)%(1<<attemptBits-1) + 1) // 0 is the first
	}
	_, err := v.connectRail(ctx, route, e.name, own, e)
	c.since = time.Time{}
	if err != nil && v.ctx.Err() == nil && e.state.Load()&(failed|closed) == 0 {
		tellPath(e, c.path, fmt.Errorf("connect from %v to %v: %w", route.from, route.to, err))
	}
	c.again = true
	return err == nil
}

// PathChange is a path that fails, or does not connect, while others carry on, or one that stands again.
type PathChange struct {
	Peer string
	Path int   // from 0
	Of   int   // how many the connection may have
	Err  error // why the path is missing; nil: it stands again
}

// tellPath tells the program, once, of a path of the endpoint that fails, or that stands again.
func tellPath(e *endpoint, path int, err error) {
	tell := e.v.opt.Paths.Changed
	if tell == nil {
		return
	}
	s := &e.rails
	s.telling.Lock()
	defer s.telling.Unlock()
	r := s.at(path)
	stands := r != nil && r.usable() // it may have failed again, or not have said hello
	if s.missing[path] == (err != nil) || err == nil && !stands {
		return
	}
	s.missing[path] = err != nil
	if err != nil {
		err = &stepvan.OpError{Op: fmt.Sprintf("path %d", path), Van: vanName, Peer: e.name, Err: err}
	}
	tell(PathChange{Peer: e.name, Path: path, Of: e.paths, Err: err})
}

// tell tells the program that a path stands again, at the side that has accepted it. The poller does not wait.
func (c *connecting) tell() {
	v := c.e.v
	if v.opt.Paths.Changed == nil || !c.e.several() {
		return
	}
	time.AfterFunc(0, func() {
		if v.members.beginCall() {
			defer v.members.calls.Done()
			tellPath(c.e, c.path, nil)
		}
	})
}
