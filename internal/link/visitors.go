package link

import (
	"container/list"
	"errors"
	"time"

	"github.com/stepvan/stepvan/van"
)

const (
	// handshakeTime is how long a peer that connected may take to introduce itself.
	handshakeTime = 10 * time.Second
	// defaultVisitors is the default of Options.Visitors.
	defaultVisitors = 1024
	// refusalLines is how many lines of the log within refusalPeriod name a refused peer. A line at the end of the
	// period counts the others.
	refusalLines  = 10
	refusalPeriod = 10 * time.Second
)

// visitors are sessions whose peer is not known to belong to the cluster, oldest first. Driver only.
type visitors struct {
	most int
	list list.List // of *Session
}

// add takes s in. When there are too many, the oldest session ends.
func (v *visitors) add(s *Session) {
	s.opening.group, s.opening.place = v, v.list.PushBack(s)
	if v.list.Len() > v.most {
		oldest, _ := v.list.Front().Value.(*Session)
		oldest.fail(errors.New("too many peers connect that do not belong to the cluster: the oldest of them makes room"))
	}
}

// SetVisitor says whether the peer of a session that has opened is a visitor, which may turn out not to belong to the
// cluster. When there are more visitors than Options.Visitors, the oldest is lost. The service that makes a peer a
// visitor bounds the time that it stays one. Only from within a call of a Handler.
func (s *Session) SetVisitor(on bool) {
	s.opening.leaveGroup()
	switch {
	case on && !s.lost:
		s.transport.visitors.add(s)
	case !on && s.opening.phase.open():
		s.keepConnection()
	}
}

// keepConnection tells the van that the peer is known, so that its connection makes room for nobody.
func (s *Session) keepConnection() {
	if e, ok := s.ep.(van.Settler); ok {
		e.Settle()
	}
}
