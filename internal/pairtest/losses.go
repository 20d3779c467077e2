package pairtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// losses reports the sessions that a server has lost. Its channel receives nothing else, and the link calls it after
// the server.
type losses struct {
	link.BaseHandler
	peers chan wire.PeerID
}

// Receive implements link.Handler.
func (l losses) Receive(*link.Inbound) (kept bool) { return false }

// Lost implements link.Handler.
func (l losses) Lost(s *link.Session, _ error) {
	select {
	case l.peers <- s.Peer().ID:
	default: // this test does not ask
	}
}

// Replace closes worker 0, and makes a peer in its place once every server knows that the worker is gone. Before that a
// server would take the peer for a second worker.
func (c *Cluster) Replace(t testing.TB, o Options, name string) *Peer {
	t.Helper()
	require.NoError(t, c.Workers[0].Transport.Close())
	for _, s := range c.Servers {
		select {
		case id := <-s.lost.peers:
			require.Equal(t, workerID(0), id)
		case <-Context(t).Done():
			t.Fatalf("%s never lost the worker", s.Name)
		}
	}
	return NewPeer(t, o, name, workerID(0))
}
