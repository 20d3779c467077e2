package link

import (
	"context"
	"errors"

	"github.com/stepvan/stepvan/internal/errs"
)

// Dial opens a session with the peer at the first of addrs whose van this node
// has. It tries again while nobody listens there, until ctx ends. A refusal by
// the peer is errs.ErrRemote with the peer's reason; different versions are a *wire.VersionError.
func (n *Node) Dial(ctx context.Context, addrs []string) (*Session, error) {
	v, local, err := n.firstReachable(addrs)
	if err != nil {
		return nil, err
	}
	ep, err := v.van.Dial(ctx, local)
	if err != nil {
		return nil, err
	}
	s := n.newSession(v, ep, true)
	ep.SetUser(s)
	if err := s.hello(); err != nil {
		return nil, s.giveUp(err)
	}
	if err := n.engine.Wait(ctx, &s.ready); err != nil {
		return nil, s.giveUp(err)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (n *Node) firstReachable(addrs []string) (*vanSlot, string, error) {
	err := errs.Invalid("no address to dial")
	for _, a := range addrs {
		v, local, e := n.resolve(a)
		if e == nil {
			return v, local, nil
		}
		err = e
	}
	return nil, "", err
}

// giveUp ends a session whose handshake did not, and names the peer in the error.
func (s *Session) giveUp(cause error) error {
	s.node.end(s, cause)
	s.mu.Lock()
	if s.err != nil {
		cause = s.err
	}
	s.mu.Unlock()
	var op *errs.OpError
	if errors.As(cause, &op) {
		return cause
	}
	return &errs.OpError{Op: "connect", Van: s.caps.Name, Peer: s.ep.Peer(), Err: cause}
}
