package server_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
)

// A worker may be lost before the server knows its workers, since workers may be faster to start. GetBatch does not
// wait for it then.
func TestAWorkerIsLostBeforeJoin(t *testing.T) {
	o := Options{Van: Mem()}
	n := NewInstance(t, o, "server 0", 1)
	s, err := server.New(n.Transport, server.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ended := endings{ended: make(chan struct{}, 9)}
	n.Transport.Handle(link.ChannelBulk, ended) // which is told after the server
	bound, err := n.Transport.Listen(o.Van.Addr("server 0"))
	require.NoError(t, err)
	var workers []server.Worker
	for i, name := range []string{"worker 0", "worker 1", "worker 2"} {
		id := wire.PeerID(100 + i)
		workers = append(workers, server.Worker{Rank: stepvan.Rank(i), Name: name, ID: id})
		w := NewInstance(t, o, name, id)
		_, err := w.Transport.Dial(Context(t), bound)
		require.NoError(t, err)
		switch i {
		case 0:
			w.Transport.Break(errors.New("on purpose"))
			<-ended.ended
		case 1:
			require.NoError(t, w.Transport.Close())
			<-ended.ended
		}
	}
	require.NoError(t, s.Join(0, workers))
	_, err = s.GetBatch(Context(t), stepvan.LockStep)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "worker 0")
}

// endings hears of sessions that end.
type endings struct {
	link.Handler
	ended chan struct{}
}

func (endings) Opened(*link.Session) error  { return nil }
func (e endings) Lost(*link.Session, error) { e.ended <- struct{}{} }
