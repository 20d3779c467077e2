package link

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

const (
	// handshakeTime is how long a peer that connected may take to introduce itself.
	handshakeTime = 10 * time.Second
	// defaultVisitors is Options.Visitors where nobody says how many there may be.
	defaultVisitors = 1024
	// refusalLines is how many lines of the log say within refusalPeriod whom the node has refused; of the others
	// a line at the end of the period tells the number.
	refusalLines  = 10
	refusalPeriod = 10 * time.Second
)

// visitors are the sessions of one kind whose peer is not known to belong to the cluster, oldest first. Driver only.
type visitors struct {
	most int
	list list.List // of *Session
}

// add takes s in. When there are too many, the oldest goes.
func (v *visitors) add(s *Session) {
	s.visitors, s.visit = v, v.list.PushBack(s)
	if v.list.Len() > v.most {
		oldest, _ := v.list.Front().Value.(*Session)
		oldest.fail(errors.New("too many peers connect that are no members of the cluster: the oldest of them makes room"))
	}
}

// settleDown takes s out of the visitors that it is among, if any.
func (s *Session) settleDown() {
	if s.visit != nil {
		s.visitors.list.Remove(s.visit)
		s.visitors, s.visit = nil, nil
	}
}

// greet begins the session of a peer that connected. Driver only.
func (n *Transport) greet(v *vanSlot, ep van.Endpoint) {
	s := n.newSession(v, ep, false)
	ep.SetUser(s)
	s.patience = time.AfterFunc(handshakeTime, func() {
		n.end(s, fmt.Errorf("%w: no introduction within %v", stepvan.ErrPeerLost, handshakeTime))
	})
	n.strangers.add(s)
}

// SetVisitor says whether the peer of a session that has opened is a visitor: one that may yet turn out not to belong
// to the cluster. When there are more of them than Options.Visitors, the oldest is lost. The service that makes a
// peer a visitor bounds the time that it stays one. Only from within a call of a Handler.
func (s *Session) SetVisitor(on bool) {
	s.settleDown()
	switch {
	case on && !s.gone:
		s.node.guests.add(s)
	case !on && s.opened:
		s.vouch()
	}
}

// vouch has the van keep the connection, whoever else comes.
func (s *Session) vouch() {
	if e, ok := s.ep.(van.Settler); ok {
		e.Settle()
	}
}
