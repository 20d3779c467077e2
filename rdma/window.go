package rdma

import (
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/van"
)

// windows give each grant a key of its own, which this side ends. A window serves one grant. Guarded by endpoint.mu.
type windows struct {
	closing []*grant       // withdrawn, and still open
	ending  []invalidation // in the order of their requests
}

// invalidation is a withdrawn grant whose key ends with a request.
type invalidation struct {
	request uint32
	grant   *grant
}

// bindAll opens the grants that the peer does not know to it. false: there is no room for all of them.
func (s *sender) bindAll() bool {
	for _, g := range s.grants.unsent {
		if g.window != nil && g.key == 0 && !s.bind(g) {
			return false
		}
	}
	return true
}

// bind adds the request that opens a grant to the chain. false: there is no room for it.
func (s *sender) bind(g *grant) bool {
	r := s.e.rails.first()
	if r.queue.requests.room() <= 0 {
		return false
	}
	if r.conn.chain.Room() == 0 {
		r.queue.post()
	}
	number, signaled := r.queue.requests.next(false)
	var f verbs.Flags
	if signaled {
		f = verbs.Signaled
	}
	key, err := r.conn.chain.Bind(sendID(r.number, number), f, g.window, g.region.keys[r.conn.device.index], uintptr(g.address), uint64(g.Length), accessOf(g.Rights))
	if err != nil {
		s.e.fail("grant", err)
		return false
	}
	g.key = uint32(key)
	return true
}

func accessOf(r van.Rights) (a verbs.Access) {
	if r&van.RightWrite != 0 {
		a |= verbs.RemoteWrite
	}
	if r&van.RightRead != 0 {
		a |= verbs.RemoteRead
	}
	return a
}

// close ends a grant that the peer leaves alone: at once, or when its key is invalid.
func (s *sender) close(g *grant) {
	if g.window == nil || g.key == 0 {
		s.forgetGrant(g, nil)
		return
	}
	s.windows.closing = append(s.windows.closing, g)
}

// endKeys adds the requests that end the keys of withdrawn grants, as far as there is room.
func (s *sender) endKeys() {
	c := s.windows.closing
	q := &s.e.rails.first().queue
	for len(c) > 0 && q.requests.room() > 0 {
		number, _ := q.add(verbs.Request{Op: verbs.OpInvalidate, Invalidate: verbs.RemoteKey(c[0].key)}, true)
		s.windows.ending = append(s.windows.ending, invalidation{number, c[0]})
		c = c[1:]
	}
	s.windows.closing = append(s.windows.closing[:0], c...)
}

// endWindows completes the withdrawals whose keys are invalid.
func (s *sender) endWindows(retired uint32) {
	e := s.windows.ending
	for len(e) > 0 && int32(retired-e[0].request) >= 0 {
		s.forgetGrant(e[0].grant, nil)
		e = e[1:]
	}
	s.windows.ending = append(s.windows.ending[:0], e...)
}

// take lists the windows of all grants. They are closed before the queue pair, which is shut, and before the memory
// that they are bound to.
func (w *windows) take(all map[van.GrantID]*grant) (list []*verbs.MW) {
	for _, g := range all {
		if g.window != nil {
			list = append(list, g.window)
		}
	}
	*w = windows{}
	return list
}
