package tcpvan

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// minPendingTime is how long a connection that nobody knows may take before it has to make room for others.
const minPendingTime = 500 * time.Millisecond

var _ van.Settler = (*endpoint)(nil)

// Settle implements van.Settler. The caller of Poll only.
func (ep *endpoint) Settle() {
	if ep.visit != nil {
		ep.v.poller.visitors.Remove(ep.visit)
		ep.visit = nil
	}
}

// crowded reports whether the connections that nobody knows leave no room for another. When they have reached
// Options.Pending, it first gives up one that had its time. Poll only.
func (p *pending) crowded() bool {
	return len(p.list)+p.v.poller.visitors.Len() >= p.v.opts.Pending && !p.makeRoom()
}

// makeRoom gives up the connection that came first of those that nobody knows, if it had its time. Poll only.
func (p *pending) makeRoom() bool {
	due := time.Now().Add(-min(minPendingTime, p.v.opts.PendingTime))
	var first *endpoint
	if e := p.v.poller.visitors.Front(); e != nil {
		first, _ = e.Value.(*endpoint)
	}
	waiting := p.list
	switch {
	case len(waiting) > 0 && (first == nil || waiting[0].since.Before(first.since)) && !waiting[0].since.After(due):
		waiting[0].refuse()
	case first != nil && !first.since.After(due):
		first.Settle()
		first.lose(fmt.Errorf("%w: %w", stepvan.ErrPeerLost, errCrowded))
	default:
		return false
	}
	return true
}

var errCrowded = errors.New("too many peers connect that do not belong to the cluster: the oldest of them makes room")
