package tcpvan

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

func TestMessagesCompleteInSend(t *testing.T) {
	for _, c := range []struct {
		o    Options
		size int
		done bool
	}{
		{Options{}, 0, true},
		{Options{}, 8, true},
		{Options{}, directBound, true},
		{Options{}, directBound + 1, true},
		{Options{}, 100_000, true},
		{Options{Rails: 2, RailThreshold: 1000}, 999, true},
		{Options{Rails: 2, RailThreshold: 1000}, 1000, false},
	} {
		a, b := newParty(t, c.o), newParty(t, c.o)
		out, _ := connect(t, a, b, "127.0.0.1:0")
		m := message(3, 7, cut(pattern(c.size, 1), 500)...)
		require.NoError(t, out.Send(m))
		require.Equal(t, c.done, m.Done, "%d bytes", c.size)
		e := expect(t, van.EventMessage, b, a)
		require.True(t, c.size == 0 || bytes.Equal(pattern(c.size, 1), b.memory.bytes()))
		e.Delivery.Release()
		completed(t, m, a, b)
		require.Zero(t, a.poll(true), "completed twice")
	}
}

// Large ones do so too, but only up to a bound without a look of Poll.
func TestLargeMessagesCompleteInSendForAWhile(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, in := connect(t, a, b, "127.0.0.1:0")
	ep := only(a)
	m := message(1, 0, pattern(directBound+1, 1))
	ep.w.bypassed.Store(bypassBound - directBound)
	require.NoError(t, out.Send(m))
	require.False(t, m.Done)
	expect(t, van.EventMessage, b, a).Delivery.Release()
	completed(t, m, a, b)
	m = message(2, 0, pattern(directBound, 1))
	ep.w.bypassed.Store(bypassBound)
	require.NoError(t, out.Send(m))
	require.True(t, m.Done)
	expect(t, van.EventMessage, b, a).Delivery.Release()

	require.NoError(t, in.Send(message(3, 0)))
	expect(t, van.EventMessage, a, b).Delivery.Release()
	m = message(4, 0, pattern(directBound+1, 1))
	require.NoError(t, out.Send(m))
	require.True(t, m.Done, "Poll has looked")
	expect(t, van.EventMessage, b, a).Delivery.Release()

	ep.w.bypassed.Store(0)
	m = message(5, 0, pattern(directBound+1, 1))
	m.More = true
	require.NoError(t, out.Send(m))
	require.False(t, m.Done, "a piece paces its sender")
	expect(t, van.EventMessage, b, a).Delivery.Release()
	completed(t, m, a, b)
}

// The van sends later what the socket does not take at all, or takes in part. It stays in order with what follows.
func TestSmallMessagesThatDoNotFit(t *testing.T) {
	b := newParty(t, tiny)
	raw := adopt(t, b)
	require.NoError(t, unix.SetsockoptInt(raw, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096))
	b.poll(true)
	ep := only(b)
	require.NoError(t, unix.SetsockoptInt(ep.rails[0].fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
	var want []byte
	open := map[van.OpID]bool{}
	for op := van.OpID(0); len(open) < 3; op++ {
		m := message(op, 3, pattern(3000, int(op)))
		want = append(want, flat(m)...)
		require.NoError(t, ep.Send(m))
		if !m.Done {
			open[op] = true
		}
	}
	var got []byte
	buf := make([]byte, 1000)
	until(t, "all bytes", func() bool {
		for {
			n, err := unix.Read(raw, buf)
			if err != nil {
				require.ErrorIs(t, err, unix.EAGAIN)
				break
			}
			got = append(got, buf[:n]...)
		}
		return len(got) == len(want)
	}, b)
	require.True(t, bytes.Equal(want, got))
	for len(open) > 0 {
		e := expect(t, van.EventCompletion, b)
		require.True(t, open[e.Op])
		delete(open, e.Op)
	}
	require.NoError(t, unix.Close(raw))
}

// A socket that is broken already refuses the message and is lost.
func TestSmallMessageToTheGone(t *testing.T) {
	b := newParty(t, Options{})
	raw := adopt(t, b)
	ep := only(b)
	require.NoError(t, unix.Close(raw))
	m := message(1, 0)
	require.ErrorIs(t, ep.Send(m), stepvan.ErrPeerLost)
	require.False(t, m.Done)
	require.ErrorIs(t, expect(t, van.EventLost, b).Err, stepvan.ErrPeerLost)
	require.ErrorIs(t, ep.Send(m), stepvan.ErrPeerLost)
	require.NoError(t, ep.Close())
	require.ErrorIs(t, ep.Send(m), stepvan.ErrClosed)
}

// only is the endpoint of b, which has no other.
func only(b *party) *endpoint {
	for ep := range b.endpoints {
		return ep
	}
	return nil
}
