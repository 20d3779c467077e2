package pairtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// losses tells of the sessions that a server has lost. Its channel receives nothing else, and learns of a loss after the
// server has.
type losses struct {
	link.BaseHandler
	nodes chan wire.PeerID
}

// Deliver implements link.Handler.
func (l losses) Deliver(m *link.Inbound) { m.Release() }

// Lost implements link.Handler.
func (l losses) Lost(s *link.Session, _ error) {
	select {
	case l.nodes <- s.Peer().ID:
	default: // nobody asks in this test
	}
}

// Replace closes worker 0 and makes a peer in its place, when every server knows that the worker is gone: until then a
// server would take the peer for a second one.
func (c *Cluster) Replace(t testing.TB, o Options, name string) *Peer {
	t.Helper()
	require.NoError(t, c.Workers[0].Link.Close())
	for _, s := range c.Servers {
		select {
		case node := <-s.lost.nodes:
			require.Equal(t, workerID(0), node)
		case <-Context(t).Done():
			t.Fatalf("%s never lost the worker", s.Name)
		}
	}
	return NewPeer(t, o, name, workerID(0))
}
