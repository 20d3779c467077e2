package peer_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// A chunk for which there is no receive memory fails its transfer. It is not taken for one that has come.
func TestAChunkWithoutMemory(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{MaxBytes: 64 << 10}, 2)
	const rows = 500_000
	src, dst := filled(t, all[0], heap, rows*16, 1), empty(t, all[1], heap, rows*32)
	recv, err := all[1].Recv(columns(t, dst, 32, 3, 16), 0, 1)
	require.NoError(t, err)
	send, err := all[0].Send(columns(t, src, 16, 0, 16), 1, 1)
	require.NoError(t, err)
	require.ErrorIs(t, recv.Wait(pairtest.Context(t)), stepvan.ErrWouldBlock)
	require.ErrorContains(t, recv.Err(), "peer 0")
	require.ErrorIs(t, send.Wait(pairtest.Context(t)), stepvan.ErrRemote)
	require.ErrorContains(t, send.Err(), "peer 1")

	small := empty(t, all[1], heap, 1000) // and the session still works
	_, err = all[0].Send(filled(t, all[0], heap, 1000, 2).Strided(), 1, 1)
	require.NoError(t, err)
	recv, err = all[1].Recv(small.Strided(), 0, 1)
	require.NoError(t, err)
	require.NoError(t, recv.Wait(pairtest.Context(t)))
}

// What ends with a session does not open another one.
func TestALossOpensNoSession(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		var opened atomic.Int32
		all := pairtest.NewPeers(t, pairtest.Options{Van: v, Link: func(o *link.Options) {
			o.Opened = func(*link.Session) { opened.Add(1) }
		}}, 3)
		require.NoError(t, all[0].Connect(pairtest.Context(t), 1)) // the other one does not dial then
		x := newExchange(t, all[:2], 1<<12, 1<<10, heap, heap)
		plans, errs := tryPlan(t, all[:2], "weights", x.sends, x.recvs)
		require.NoError(t, errors.Join(errs...))
		defer func() {
			for _, pl := range plans {
				require.NoError(t, pl.Close(pairtest.Context(t)))
			}
		}()
		var handles []peer.Handle
		for _, pl := range plans {
			h, err := pl.Begin(1)
			require.NoError(t, err)
			handles = append(handles, h)
		}
		for _, s := range all[0].Transport.Sessions() {
			s.Drop(stepvan.ErrPeerLost)
		}
		for i, h := range handles {
			if h.Wait(pairtest.Context(t)) != nil {
				require.ErrorIs(t, h.Err(), stepvan.ErrPeerLost)
				require.Zero(t, plans[i].Version())
			}
		}
		before := opened.Load()
		require.EqualValues(t, 2, before)
		for i := range 2 { // there is time enough for another one to open
			require.NoError(t, all[i].Connect(pairtest.Context(t), 2))
			dst := empty(t, all[2], heap, 8).Strided()
			for range 100 {
				recv, err := all[2].Recv(dst, stepvan.Rank(i), 1)
				require.NoError(t, err)
				_, err = all[i].Send(bytesOf(t, 8), 2, 1)
				require.NoError(t, err)
				require.NoError(t, recv.Wait(pairtest.Context(t)))
			}
		}
		for opened.Load() < before+4 { // the other ends may take a moment
			runtime.Gosched()
		}
		require.Equal(t, before+4, opened.Load())
	})
}
