package tcpvan

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// check has b look for silence, as its timer does, and take what has come.
func (p *party) check() {
	p.poller.guardedSince = time.Now().Add(-p.opts.checkTime())
	p.silence.due.Store(true)
	p.poll(true)
}

// midMessage is a party to which somebody has sent the beginning of a message only, and what is left of that.
func midMessage(t *testing.T, first int) (b *party, c net.Conn, rest []byte) {
	t.Helper()
	b = newParty(t, Options{Stall: time.Hour}) // only the test checks
	whole := flat(message(1, 40, pattern(100<<10, 1)))
	c, in := visit(t, b, whole[:first])
	until(t, "the beginning", func() bool { return in.(*endpoint).rd.got == uint64(first) }, b)
	b.check() // it sees that something has come
	return b, c, whole[first:]
}

// Nobody can tell a peer that is silent in the middle of a message from one that has vanished.
func TestSilenceInTheMiddleOfAMessage(t *testing.T) {
	for _, first := range []int{20, 130, 200, 50_000} {
		b, _, _ := midMessage(t, first)
		for range stallChecks - 1 {
			b.check()
		}
		require.Empty(t, b.got)
		b.check()
		e := expect(t, van.EventLost, b)
		require.ErrorIs(t, e.Err, stepvan.ErrPeerLost)
		require.ErrorContains(t, e.Err, "in the middle of a message")
	}
}

// A process that was stopped finds that much time has passed, in which it would not have heard anything.
func TestOwnPauseIsNoSilence(t *testing.T) {
	b, _, _ := midMessage(t, 130)
	b.poller.guardedSince = time.Now().Add(-10 * b.opts.Stall)
	b.silence.due.Store(true)
	b.poll(true)
	for range stallChecks - 3 {
		b.check()
	}
	require.Empty(t, b.got)
}

func TestSlownessIsNoSilence(t *testing.T) {
	b, c, rest := midMessage(t, 130)
	for i := range 5 {
		for range stallChecks - 1 {
			b.check()
		}
		_, err := c.Write(rest[i : i+1])
		require.NoError(t, err)
		ep := b.endpoint(t)
		until(t, "a byte", func() bool { return ep.rd.got == uint64(131+i) }, b)
		b.check()
	}
	_, err := c.Write(rest[5:])
	require.NoError(t, err)
	expect(t, van.EventMessage, b).Delivery.Release()
	for range 3 * stallChecks {
		b.check() // between messages anybody may be silent
	}
	require.Empty(t, b.got)
}

// A peer was not silent when its bytes came while this side did not look.
func TestBytesThatWaitAreNoSilence(t *testing.T) {
	b, c, rest := midMessage(t, 130)
	for range stallChecks - 1 {
		b.check()
	}
	_, err := c.Write(rest)
	require.NoError(t, err)
	arrived(t, b.endpoint(t).rails[0].fd)
	b.check()
	expect(t, van.EventMessage, b).Delivery.Release()
	require.Empty(t, b.got)
}

// The timer wakes a driver that sleeps.
func TestSilenceIsNoticedAsleep(t *testing.T) {
	b := newParty(t, Options{Stall: 50 * time.Millisecond})
	visit(t, b, flat(message(1, 40, pattern(100, 1)))[:150])
	require.ErrorIs(t, expect(t, van.EventLost, b).Err, stepvan.ErrPeerLost)
}

// endpoint is the only one there is.
func (p *party) endpoint(t testing.TB) *endpoint {
	t.Helper()
	require.Len(t, p.endpoints, 1)
	for ep := range p.endpoints {
		return ep
	}
	return nil
}

// arrived waits until a socket has something to read.
func arrived(t testing.TB, fd int) {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit/time.Millisecond))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
