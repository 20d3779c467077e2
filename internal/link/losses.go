package link

import (
	"errors"
	"slices"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const (
	// sweeps bounds how often the vans are asked again before a loss is told.
	sweeps = 4
	// lossPause is how long the loss of a peer that gave no reason waits for a loss that may be its cause.
	lossPause = 100 * time.Millisecond
)

// losses are the ends of sessions that their handlers have not been told. Driver only.
type losses struct {
	list  []loss
	fresh bool // something was added since the last look
	due   time.Time
	timer *time.Timer // calls the driver when that has come
}

// loss is one of them.
type loss struct {
	session *Session
	err     error

	detached bool // the van has said so meanwhile
}

// TellLossFirst has the loss of s told before that of others that have ended at the same moment or shortly before
// without giving a reason: it may be what made their peers go. Without effect when s is lost already. Any goroutine, once.
func (s *Session) TellLossFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == stateLost {
		return // lose, which counts it out, has been
	}
	s.first.Store(true)
	s.node.leads.Add(1)
}

// depart loses s because of its peer, after everything else that has arrived by now. Driver only.
func (n *Transport) depart(s *Session, err error) {
	if s.gone {
		return
	}
	s.gone = true // for what the van has already reported
	n.losses.list, n.losses.fresh = append(n.losses.list, loss{session: s, err: err}), true
}

// settleLosses tells losses, or waits a while for their cause. It returns how much happened.
func (n *Transport) settleLosses() (total int) {
	l := &n.losses
	if !l.fresh && time.Now().Before(l.due) {
		return 0
	}
	if l.fresh {
		total = n.sweep()
		l.fresh = false
		if n.leads.Load() > 0 && !slices.ContainsFunc(l.list, loss.leads) {
			return total + n.holdBack()
		}
	}
	return total + n.tellLosses()
}

// holdBack tells the losses that were explained, and those that explain nothing to anybody. It has the others wait.
func (n *Transport) holdBack() int {
	l := &n.losses
	var told, held []loss
	for _, x := range l.list {
		if x.explained() || x.unheard() {
			told = append(told, x)
		} else {
			held = append(held, x)
		}
	}
	l.list = held
	if len(held) > 0 && l.due.IsZero() {
		l.due = time.Now().Add(n.pause)
		l.timer = time.AfterFunc(n.pause, n.engine.WakeAll)
	}
	n.tell(told)
	return len(told)
}

// sweep asks all vans for what has arrived.
func (n *Transport) sweep() (total int) {
	for range sweeps {
		found := 0
		for i := range n.vans {
			found += n.pollVan(&n.vans[i], true)
		}
		if total += found; found == 0 {
			break
		}
	}
	return total
}

// leads reports whether l may be the cause of others.
func (l loss) leads() bool { return l.session.first.Load() }

// explained reports whether the reason of l is known.
func (l loss) explained() bool {
	return errors.Is(l.err, ErrLeft) || errors.Is(l.err, stepvan.ErrClosed)
}

// unheard reports whether no handler knows the session of l. Any number of strangers may come and go: if these losses were
// kept, each pass would go over all of them.
func (l loss) unheard() bool { return !l.session.opened && l.session.greeted == 0 }

// tellLosses tells all losses.
func (n *Transport) tellLosses() int {
	list := n.losses.list
	if n.losses.timer != nil {
		n.losses.timer.Stop() // it would keep the whole node in memory
	}
	n.losses = losses{}
	slices.SortStableFunc(list, func(a, b loss) int { return order(b) - order(a) })
	n.tell(list)
	return len(list)
}

func (n *Transport) tell(list []loss) {
	for _, l := range list {
		n.at = &van.Event{Kind: van.EventLost, Endpoint: l.session.ep} // for the report of a panic
		l.session.lose(l.err)
		if l.detached {
			l.session.detach()
		}
	}
}

// detachAfterLoss notes that the peer of s reaches nothing any more, if the loss of s is still to be told.
func (n *Transport) detachAfterLoss(s *Session) bool {
	for i := range n.losses.list {
		if l := &n.losses.list[i]; l.session == s {
			l.detached = true
			return true
		}
	}
	return false
}

// order is higher for what is told first.
func order(l loss) int {
	if l.leads() {
		return 1
	}
	return 0
}
