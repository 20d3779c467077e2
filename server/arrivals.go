package server

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/staging"
	"github.com/stepvan/stepvan/tensor"
)

// arrivals are requests with pushes into buffers of an accelerator, and what their workers have sent behind them. A
// goroutine copies the pushes that no device has written there, and queues the requests in their order. It lives as
// long as there are some. Server.mu guards the list.
type arrivals struct {
	s    *Server
	list []arrival
	busy int // other goroutines that use the stager
}

// arrival is a whole message, or why it is refused.
type arrival struct {
	h      requestHandler
	m      *link.Inbound // kept
	from   *workerPeer
	req    *requestSlot // nil for a refused one, and for a fence
	direct []bool       // for each push: a device has written it to the accelerator; nil: none
	err    error
}

// copied is what copyIn collects for each accelerator.
type copied struct {
	in, out []staging.Move
	written bool // devices have written to it
	key     tensor.Key
}

// take takes over a message that has to wait. Under Server.mu. Budget: a look at each push.
func (a *arrivals) take(h requestHandler, m *link.Inbound, req *requestSlot, err error) bool {
	if len(a.list) == 0 && (err != nil || !req.mirrored()) {
		return false
	}
	from := a.s.sessions.open[m.Session]
	if (err != nil || !req.mirrored()) && !a.waits(from) {
		return false
	}
	next := arrival{h: h, m: m, from: from, req: req, err: err}
	if err == nil {
		next.direct = req.writtenByDevices(m)
	}
	a.add(next)
	return true
}

// takeFence takes over a fence behind requests that have to wait: their pushes may be in memory that the fence gives
// back. Under Server.mu.
func (a *arrivals) takeFence(h requestHandler, m *link.Inbound) bool {
	from := a.s.sessions.open[m.Session]
	if len(a.list) == 0 || !a.waits(from) {
		return false
	}
	a.add(arrival{h: h, m: m, from: from})
	return true
}

// add adds next to the list. Under Server.mu.
func (a *arrivals) add(next arrival) {
	a.list = append(a.list, next)
	if len(a.list) == 1 {
		go a.run()
	}
}

// writtenByDevices returns which pushes devices have written to an accelerator, or nil. Under Server.mu.
func (r *requestSlot) writtenByDevices(m *link.Inbound) (list []bool) {
	for i, c := range r.chunks {
		if c != nil && c.direct && formOf(m, &r.meta.Pushes[i]) == pushWritten {
			if list == nil {
				list = make([]bool, len(r.chunks))
			}
			list[i] = true
		}
	}
	return list
}

// waits reports whether a message of this worker is in the list.
func (a *arrivals) waits(from *workerPeer) bool {
	for i := range a.list {
		if a.list[i].from == from {
			return true
		}
	}
	return false
}

// mirrored reports whether a push belongs into memory of an accelerator.
func (r *requestSlot) mirrored() bool {
	for _, c := range r.chunks {
		if c != nil && c.buffer.mirror != nil {
			return true
		}
	}
	for i := range r.late {
		if r.late[i].accelerator.Valid() {
			return true
		}
	}
	return false
}

// run queues the messages in their order, until none is left.
func (a *arrivals) run() {
	for more := true; more; {
		more = a.queueNext()
	}
	a.closeStager()
}

func (a *arrivals) queueNext() (more bool) {
	s := a.s
	s.mu.Lock()
	next := a.list[0]
	s.mu.Unlock()
	if next.req == nil && next.err == nil {
		next.h.fence(next.m)
		next.m.Release()
		s.mu.Lock()
		defer s.mu.Unlock()
		return a.next()
	}
	var pushes []tensor.Tensor
	if next.err == nil {
		pushes, next.err = a.copyIn(&next)
	}
	s.mu.Lock()
	if next.err == nil && s.closed {
		next.err = errClosed("push_pull")
	}
	if next.req != nil {
		if next.err == nil {
			next.req.releaseLate()
			copy(next.req.pushes, pushes)
		} else {
			s.requests.recycle(next.req)
		}
	}
	follow := next.h.enqueue(next.m, next.req, next.err)
	more = a.next()
	s.mu.Unlock()
	follow.finish(s, next.m)
	if !follow.kept {
		next.m.Release()
	}
	return more
}

// next removes the first arrival, and reports whether there are more. Under Server.mu.
func (a *arrivals) next() (more bool) {
	a.list[0] = arrival{}
	if a.list = a.list[1:]; len(a.list) == 0 {
		a.list = nil
	}
	return len(a.list) > 0
}

// copyIn copies the pushes of a request to their accelerators, and those that came late from there. It returns the
// tensors of all pushes, in their order.
func (a *arrivals) copyIn(next *arrival) ([]tensor.Tensor, error) {
	r := next.req
	pushes := append([]tensor.Tensor(nil), r.pushes...)
	all := map[tensor.Device]*copied{}
	of := func(d tensor.Device, k tensor.Key) *copied {
		if all[d] == nil {
			all[d] = &copied{key: k}
		}
		return all[d]
	}
	for i, c := range r.chunks {
		if c == nil || c.buffer.mirror == nil {
			continue
		}
		t, err := c.buffer.mirror.part(c, &pushes[i])
		if err != nil {
			return nil, fmt.Errorf("push of key %d: %w", c.key, err)
		}
		moves := of(t.Device(), c.key)
		if i < len(next.direct) && next.direct[i] {
			moves.written = true
		} else {
			moves.in = append(moves.in, staging.Move{Tensor: t, Host: pushes[i].Bytes()})
		}
		pushes[i] = t
	}
	for i := range r.late {
		l := &r.late[i]
		if t := l.accelerator; t.Valid() {
			moves := of(t.Device(), r.keys[l.index])
			moves.written = true
			moves.out = append(moves.out, staging.Move{Tensor: t, Host: pushes[l.index].Bytes()})
		}
	}
	for d, c := range all {
		if err := a.move(d, c); err != nil {
			return nil, fmt.Errorf("server %d: push of key %d: the copy to %s has failed: %w", a.s.rank, c.key, d, err)
		}
	}
	return pushes, nil
}

// move copies, and has d see what devices have written to its memory.
func (a *arrivals) move(d tensor.Device, c *copied) error {
	if c.written {
		if err := staging.Flush(d); err != nil {
			return err
		}
	}
	if len(c.out) > 0 {
		if err := a.s.stager.Out(d, c.out); err != nil {
			return err
		}
	}
	if len(c.in) == 0 {
		return nil
	}
	copies, err := a.s.stager.BeginIn(d, c.in)
	if err != nil {
		return err
	}
	return copies.Await()
}

// closeStager closes what a closed server needs no more. Close calls it, and so do the goroutines that end later.
func (a *arrivals) closeStager() {
	s := a.s
	s.mu.Lock()
	over := s.closed && len(a.list) == 0 && a.busy == 0
	s.mu.Unlock()
	if !over {
		return
	}
	if err := s.stager.Close(); err != nil {
		s.opt.Log.Warn().Err(err).Msg("an accelerator did not give up the streams and the memory of this server")
	}
}
