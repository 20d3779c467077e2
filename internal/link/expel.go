package link

import "github.com/stepvan/stepvan/internal/wire"

// Expel ends all sessions with a peer at once, without goodbye: it is known by other
// means to be dead. Handler.Lost gets cause, as with Session.Drop. Any goroutine.
func (n *Transport) Expel(peer wire.PeerID, cause error) {
	for _, s := range n.sessionsWith(peer) {
		n.end(s, cause)
	}
}

// Goodbye closes all sessions with a reason that their peers learn. It returns at once. Any goroutine.
func (n *Transport) Goodbye(reason string) {
	n.mu.Lock()
	open := make([]*Session, 0, len(n.sessions))
	for s := range n.sessions {
		open = append(open, s)
	}
	n.mu.Unlock()
	for _, s := range open {
		_ = s.Close(reason) // one that is lost needs none
	}
}

func (n *Transport) sessionsWith(peer wire.PeerID) []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*Session
	for s := range n.sessions {
		s.mu.Lock()
		if s.peerNode == peer {
			out = append(out, s)
		}
		s.mu.Unlock()
	}
	return out
}
