package tcpvan

import "golang.org/x/sys/unix"

const (
	// askAfterCalls is after how many calls Poll asks epoll about all endpoints, although the hot ones never rest.
	askAfterCalls = 16
	// coldAfterMoves is after how many moves of one endpoint in a row the other hot one is hot no more.
	coldAfterMoves = 64
	// trustAfterMoves is how many moves of hot endpoints in a row follow a move of another one until Poll trusts
	// that only hot ones move. Meanwhile it asks epoll in each call. That costs about as much as finding one
	// socket empty.
	trustAfterMoves = 16
	// unwatchAfterMoves is after how many moves an endpoint leaves the epoll set. Leaving and coming back cost
	// about as much as the wake-ups of two dozen messages do.
	unwatchAfterMoves = 256
)

// queueHot queues the hot endpoints as if epoll had named them. Hot are the endpoints that moved last, two at
// most. To move is to receive bytes or to hand out completions. When Poll asks epoll too, it queues only those that are
// not in the epoll set.
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

// countMove counts a move of ep, which becomes hot.
func (p *poller) countMove(ep *endpoint) {
	p.moves++
	if p.hot[0] != ep && p.hot[1] != ep {
		p.distrust = trustAfterMoves
	} else if p.distrust > 0 {
		p.distrust--
	}
	if ep.hotMoves++; ep.hotMoves == unwatchAfterMoves {
		p.unwatch(ep)
	}
	if p.hot[0] != ep {
		if p.hot[1] != ep {
			p.rewatch(p.hot[1])
		}
		p.hot[0], p.hot[1] = ep, p.hot[0]
		p.streak = 0
		return
	}
	if p.streak++; p.streak > coldAfterMoves {
		p.rewatch(p.hot[1])
		p.hot[1] = nil
	}
}

// cool puts the hot endpoints back into the epoll set, before the driver sleeps on it.
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
	ep.hotMoves = 0
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
