package peer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// dialler stands before the dials of peers.
type dialler struct {
	refuse atomic.Pointer[error] // what dials end with at once; nil: they go through
	hang   atomic.Bool           // dials end with their time
	late   atomic.Bool           // the next dial does so, and opens its session before that
	dials  atomic.Int64          // that have begun
	begun  chan time.Duration    // the time that a dial has
	ended  chan error            // dials that have hung
}

func (d *dialler) stand(o *peer.Options) {
	through := o.Dial
	d.begun, d.ended = make(chan time.Duration, 64), make(chan error, 64)
	o.Dial = func(ctx context.Context, rank stepvan.Rank) (*link.Session, error) {
		d.dials.Add(1)
		if err := d.refuse.Load(); err != nil {
			return nil, *err
		}
		if !d.hang.Load() {
			s, err := through(ctx, rank)
			if d.late.CompareAndSwap(true, false) {
				<-ctx.Done()
			}
			return s, err
		}
		end, _ := ctx.Deadline()
		d.begun <- time.Until(end)
		<-ctx.Done()
		d.ended <- ctx.Err()
		return nil, ctx.Err()
	}
}

// next waits for what a dialler reports.
func next[T any](t testing.TB, from <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-from:
	case <-pairtest.Context(t).Done():
		t.Fatal("no dial")
	}
	return x
}

// breakSession ends the session of two peers, and waits until both know.
func breakSession(t testing.TB, all []*pairtest.PeerOfCluster) {
	t.Helper()
	require.NoError(t, all[0].Connect(pairtest.Context(t), 1))
	var handles []peer.Handle
	for i := range 2 {
		h, err := all[i].Recv(empty(t, all[i], heap, 8).Strided(), stepvan.Rank(1-i), 99)
		require.NoError(t, err)
		handles = append(handles, h)
	}
	for _, s := range all[0].Transport.Sessions() {
		s.Drop(stepvan.ErrPeerLost)
	}
	for _, h := range handles {
		require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
	}
}

// A peer that lives is reached again after its session broke, whichever side needs it.
func TestASessionThatBrokeOpensAgain(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		for round := range 6 {
			breakSession(t, all)
			from, to := all[round%2], all[1-round%2]
			src, dst := filled(t, from, heap, 5000, uint64(round)), empty(t, to, heap, 5000)
			recv, err := to.Recv(dst.Strided(), from.Rank(), 1)
			require.NoError(t, err)
			send, err := from.Send(src.Strided(), to.Rank(), 1)
			require.NoError(t, err)
			require.NoError(t, errors.Join(recv.Wait(pairtest.Context(t)), send.Wait(pairtest.Context(t))))
			require.Equal(t, src.Bytes(), dst.Bytes())
		}
	})
}

// A session that broke gets little time to open again, even where nobody says that the peer has died.
func TestAPeerThatCannotBeReachedAgain(t *testing.T) {
	const redial = 20 * time.Millisecond
	var d dialler
	all := pairtest.NewPeers(t, pairtest.Options{Peer: func(o *peer.Options) { d.stand(o); o.Redial = redial }}, 2)
	breakSession(t, all)
	d.hang.Store(true)
	h, err := all[0].Send(bytesOf(t, 8), 1, 1)
	require.NoError(t, err)
	require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
	require.ErrorContains(t, h.Err(), "peer 1")
	require.LessOrEqual(t, next(t, d.begun), redial)
	err = all[0].Connect(pairtest.Context(t), 1)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "peer 1")

	d.hang.Store(false) // it can be reached again
	require.NoError(t, all[0].Connect(pairtest.Context(t), 1))
}

// Connect tells why a peer cannot be reached, instead of dialling it for ever.
func TestConnectTellsWhyADialFails(t *testing.T) {
	var d dialler
	all := pairtest.NewPeers(t, pairtest.Options{Peer: d.stand}, 3)
	why := errors.New("no van in common")
	d.refuse.Store(&why)
	err := all[0].Connect(pairtest.Context(t), 2, 1)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
	require.ErrorContains(t, err, "peer 2")
	require.ErrorContains(t, err, why.Error())
	require.LessOrEqual(t, d.dials.Load(), int64(2), "one for each peer")
}

// The dials of a peer that is known to be dead end at once. Others wait for their turn.
func TestADeathEndsTheDialsOfThePeer(t *testing.T) {
	var d dialler
	all := pairtest.NewPeers(t, pairtest.Options{Peer: d.stand}, 2)
	d.hang.Store(true)
	h, err := all[0].Send(bytesOf(t, 8), 1, 1)
	require.NoError(t, err)
	next(t, d.begun)
	all[0].Service.Lost(all[0].Members()[1].ID, stepvan.ErrPeerLost)
	require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
	require.ErrorIs(t, next(t, d.ended), context.Canceled)
}

// A session that breaks before the dial which opened it has returned is opened again as any other.
func TestASessionThatBreaksDuringItsDial(t *testing.T) {
	var d dialler
	all := pairtest.NewPeers(t, pairtest.Options{Peer: d.stand}, 2)
	d.late.Store(true)
	breakSession(t, all)
	src, dst := filled(t, all[0], heap, 5000, 1), empty(t, all[1], heap, 5000)
	send, err := all[0].Send(src.Strided(), 1, 1)
	require.NoError(t, err)
	recv, err := all[1].Recv(dst.Strided(), 0, 1)
	require.NoError(t, err)
	require.NoError(t, errors.Join(recv.Wait(pairtest.Context(t)), send.Wait(pairtest.Context(t))))
	require.Equal(t, src.Bytes(), dst.Bytes())
	require.EqualValues(t, 2, d.dials.Load())
}
