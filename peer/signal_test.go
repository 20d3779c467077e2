package peer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

func TestASignalIsSetByAListener(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		came, never := peer.NewSignal(all[0].Peer), peer.NewSignal(all[0].Peer)
		stop, err := all[0].Listen("topic", func(stepvan.Rank, []byte) { came.Set() })
		require.NoError(t, err)
		defer stop()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, came.Wait(gone), context.Canceled)
		require.NoError(t, peer.Check(all[0].Peer, 1))
		require.ErrorIs(t, peer.Check(all[0].Peer, 2), stepvan.ErrInvalid)
		require.NoError(t, all[1].Mail(0, "topic", nil))
		require.NoError(t, came.Wait(pairtest.Context(t)))
		require.NoError(t, came.Wait(gone))
		all[0].Service.Lost(all[1].Members()[1].ID, stepvan.ErrPeerLost)
		require.ErrorIs(t, peer.Check(all[0].Peer, 1), stepvan.ErrPeerLost)
		require.NoError(t, all[0].Transport.Abort())
		require.ErrorIs(t, never.Wait(pairtest.Context(t)), stepvan.ErrClosed)
	})
}
