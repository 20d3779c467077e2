package tcpvan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// unwatched has b receive from raw until the endpoint has left the epoll set.
func unwatched(t *testing.T, b *party, raw int) *endpoint {
	t.Helper()
	for range unwatchAfterMoves {
		receiveOne(t, b, raw)
	}
	require.True(t, b.poller.hot[0].unwatched)
	return b.poller.hot[0]
}

// receiveOne has b receive one message from raw.
func receiveOne(t *testing.T, b *party, raw int) {
	t.Helper()
	_, err := unix.Write(raw, flat(message(1, 0)))
	require.NoError(t, err)
	spin(t, func() bool { return b.poll(false) > 0 })
	e := b.next()
	require.Equal(t, van.EventMessage, e.Kind)
	e.Delivery.Release()
}

// spin tries again until done, without sleep: Arm would cool what is hot.
func spin(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); {
		require.True(t, time.Now().Before(end), "waited in vain")
	}
}

// settle polls and arms until b may sleep.
func settle(t *testing.T, b *party) {
	t.Helper()
	spin(t, func() bool { return b.poll(true) == 0 && b.Arm() })
}

func TestBytesWakeAfterArm(t *testing.T) {
	b := newParty(t, Options{})
	raw := adopt(t, b)
	ep := unwatched(t, b, raw)
	for range 2 { // before, and after, it arms
		settle(t, b)
		require.False(t, ep.unwatched)
		require.False(t, b.readable(t))
		_, err := unix.Write(raw, flat(message(1, 0)))
		require.NoError(t, err)
		require.True(t, b.readable(t))
		expect(t, van.EventMessage, b).Delivery.Release()
	}
	_, err := unix.Write(raw, flat(message(1, 0)))
	require.NoError(t, err)
	require.Equal(t, 1, b.poll(true))
	require.NoError(t, unix.Close(raw))
}

// What came between the last Poll and Arm wakes as well.
func TestBytesBeforeArmWake(t *testing.T) {
	b := newParty(t, Options{})
	raw := adopt(t, b)
	unwatched(t, b, raw)
	for b.poll(true) > 0 {
	}
	_, err := unix.Write(raw, flat(message(1, 0)))
	require.NoError(t, err)
	require.True(t, b.Arm())
	require.True(t, b.readable(t))
	expect(t, van.EventMessage, b).Delivery.Release()
	require.NoError(t, unix.Close(raw))
}

// The van sends the rest of a message that did not fit without another call of Send, whether Poll spins or sleeps.
func TestRoomForAnUnwatchedEndpoint(t *testing.T) {
	for _, sleep := range []bool{false, true} {
		b := newParty(t, Options{})
		raw := adopt(t, b)
		ep := unwatched(t, b, raw)
		large := message(9, 0, make([]byte, 4<<20))
		require.NoError(t, ep.Send(large))
		require.True(t, ep.w.out.pending())
		if sleep {
			settle(t, b)
		}
		left, buf := len(flat(large)), make([]byte, 1<<20)
		until(t, "all bytes", func() bool {
			for {
				n, err := unix.Read(raw, buf)
				if err != nil {
					require.ErrorIs(t, err, unix.EAGAIN)
					break
				}
				left -= n
			}
			return left == 0
		}, b)
		require.Equal(t, van.OpID(9), expect(t, van.EventCompletion, b).Op)
		require.NoError(t, unix.Close(raw))
	}
}

func TestLossOfAnUnwatchedEndpoint(t *testing.T) {
	b := newParty(t, Options{})
	raw := adopt(t, b)
	unwatched(t, b, raw)
	require.NoError(t, unix.Close(raw))
	require.ErrorIs(t, expect(t, van.EventLost, b).Err, stepvan.ErrPeerLost)
	raw = adopt(t, b)
	ep := unwatched(t, b, raw)
	require.NoError(t, ep.Close())
	settle(t, b)
	require.Empty(t, b.got)
	require.NoError(t, unix.Close(raw))
}

// An endpoint goes back into the epoll set when others are active instead of it.
func TestUnwatchedEndpointsReturn(t *testing.T) {
	b := newParty(t, Options{})
	raw := []int{adopt(t, b), adopt(t, b), adopt(t, b)}
	first := unwatched(t, b, raw[0])
	second := unwatched(t, b, raw[1])
	require.False(t, first.unwatched, "idle for as long as the second needed")
	for range unwatchAfterMoves {
		receiveOne(t, b, raw[0])
		receiveOne(t, b, raw[1])
	}
	require.True(t, first.unwatched && second.unwatched, "two may be active")
	receiveOne(t, b, raw[2])
	require.True(t, first.unwatched != second.unwatched, "one has made room")
	for _, fd := range raw {
		receiveOne(t, b, fd)
	}
	for _, fd := range raw {
		require.NoError(t, unix.Close(fd))
	}
}

func TestSeveralRailsStayInTheSet(t *testing.T) {
	a, b := newParty(t, Options{Rails: 2}), newParty(t, Options{})
	out, in := connect(t, a, b, "127.0.0.1:0")
	for range unwatchAfterMoves {
		require.NoError(t, out.Send(message(1, 0)))
		spin(t, func() bool { return b.poll(false) > 0 })
		b.next().Delivery.Release()
		require.NoError(t, in.Send(message(2, 0)))
		spin(t, func() bool { return a.poll(false) > 0 })
		a.next().Delivery.Release()
	}
	require.False(t, out.(*endpoint).unwatched || in.(*endpoint).unwatched)
}
