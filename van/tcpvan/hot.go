package tcpvan

import "golang.org/x/sys/unix"

const (
	// askAfterCalls is how many calls in a row may leave the others alone although the endpoints that
	// were active lately never rest.
	askAfterCalls = 16
	// coldAfterMoves is after how many moves of one endpoint the one that was active before it counts as idle.
	coldAfterMoves = 64
	// trustAfterMoves is after how many moves of the endpoints that were active lately Poll trusts again that
	// no others move. Until then each call asks epoll, which costs about as much as
	// finding one socket empty.
	trustAfterMoves = 16
	// unwatchAfterMoves is after how many moves an endpoint leaves the epoll set. Leaving and coming back cost
	// about as much as the wake-ups of two dozen messages do.
	unwatchAfterMoves = 256
)

// queueHot queues the endpoints that were active lately as if epoll had named them. When Poll
// asks epoll too, it queues only the endpoints that are not in the epoll set.
func (p *poller) queueHot(asked bool) {
	for i, ep := range p.hot {
		if ep == nil {
			continue
		}
		if ep.state.Load()&ended != 0 {
			p.hot[i] = nil
			continue
		}
		if asked && !ep.unwatched {
			continue
		}
		for _, c := range ep.rails {
			c.readable = true
			c.blocked.Store(false)
		}
		p.enqueue(ep)
	}
	if p.hot[0] == nil {
		p.hot[0], p.hot[1] = p.hot[1], nil
	}
}

// touch notes that bytes or completions moved at ep.
func (p *poller) touch(ep *endpoint) {
	p.touched++
	if p.hot[0] != ep && p.hot[1] != ep {
		p.strays = trustAfterMoves
	} else if p.strays > 0 {
		p.strays--
	}
	if ep.warmth++; ep.warmth == unwatchAfterMoves {
		p.unwatch(ep)
	}
	if p.hot[0] != ep {
		if p.hot[1] != ep {
			p.rewatch(p.hot[1])
		}
		p.hot[0], p.hot[1] = ep, p.hot[0]
		p.alone = 0
		return
	}
	if p.alone++; p.alone > coldAfterMoves {
		p.rewatch(p.hot[1])
		p.hot[1] = nil
	}
}

// cool puts the endpoints that were active lately back into the epoll set, before somebody sleeps on it.
func (p *poller) cool() {
	for _, ep := range p.hot {
		p.rewatch(ep)
	}
}

// unwatch takes ep out of the epoll set, since each call of Poll looks at ep anyway. A socket that is in a set
// wakes the set with each packet. When the peer is on this machine, that happens inside the peer's system call.
// Endpoints of several rails stay: epoll alone tells of the loss of a rail from which nothing is expected. Poll only.
func (p *poller) unwatch(ep *endpoint) {
	p.v.mu.Lock()
	defer p.v.mu.Unlock()
	if _, ok := p.v.endpoints[ep]; ok && len(ep.rails) == 1 {
		ep.unwatched = p.v.set.epoll.Remove(ep.rails[0].fd) == nil
	}
}

// rewatch undoes unwatch; epoll tells at once of what has come meanwhile. Poll and Arm only. ep may be nil.
func (p *poller) rewatch(ep *endpoint) {
	if ep == nil {
		return
	}
	ep.warmth = 0
	if !ep.unwatched {
		return
	}
	p.v.mu.Lock()
	defer p.v.mu.Unlock()
	ep.unwatched = false
	if _, ok := p.v.endpoints[ep]; ok {
		c := ep.rails[0]
		_ = p.v.set.epoll.Add(c.fd, c.interest(), c.slot)
	}
}

// interest is what epoll is to tell of c.
func (c *conn) interest() uint32 {
	if c.polled.Load() {
		return connMask | unix.EPOLLOUT
	}
	return connMask
}
