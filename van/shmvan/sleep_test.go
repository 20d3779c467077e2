package shmvan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

func readable(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	require.NoError(t, err)
	return n > 0
}

func (p *party) sleep() {
	p.t.Helper()
	p.eventually("sleep", func() bool { return p.v.Poll(make([]van.Event, 1), true) == 0 && p.v.Arm() })
}

// A sender makes one system call for each sleep of the receiver, and none for one that is awake.
func TestOneWakeForEachSleep(t *testing.T) {
	_, b, x, y := pair(t, Options{})
	inbox := func() int {
		n, err := unix.IoctlGetInt(y.conn.sock, unix.SIOCINQ)
		require.NoError(t, err)
		return n
	}
	require.NoError(t, x.Send(message(1)))
	require.Zero(t, inbox(), "woken though awake")
	b.until(van.EventMessage).Delivery.Release()
	for round := range 3 {
		b.sleep()
		require.False(t, readable(t, b.v.FD()))
		for range 3 {
			require.NoError(t, x.Send(message(1)))
		}
		require.Equal(t, len(wakeByte), inbox(), round)
		require.True(t, readable(t, b.v.FD()))
		for range 3 {
			b.until(van.EventMessage).Delivery.Release()
		}
	}
	b.sleep() // takes the byte, or it would not be asleep
	require.Zero(t, inbox())
}

// Pieces of a large message that the sender has written wake nobody before the last but one, unless they acknowledge
// something or give credit.
func TestPiecesLetThePeerSleep(t *testing.T) {
	const size, pieces = 4096, 6
	_, b, x, y := pair(t, Options{Files: memory()})
	g, err := granter{y}.Grant(shared(t, pieces*size), 1, everything)
	require.NoError(t, err)
	payload := shared(t, size)
	b.sleep()
	for i := range pieces {
		h := wire.Header{Kind: wire.KindData, Payload: size, Total: pieces * size, Offset: uint64(i * size)}
		news := i == 2 || i == 3
		h.Ack, h.Credit = uint64(min(i, 2)/2), uint64(min(i, 3)/3)
		m := message(van.OpID(i), payload)
		h.Encode(m.Head, nil)
		m.Target = []van.Target{{Grant: g.ID, Generation: 1, Offset: int64(i * size)}}
		m.More = i < pieces-1
		require.NoError(t, x.Send(m))
		require.True(t, m.Done)
		require.Equal(t, news || i >= pieces-2, readable(t, b.v.FD()), i)
		if news {
			for range map[int]int{2: 3, 3: 1}[i] {
				b.until(van.EventMessage).Delivery.Release()
			}
			b.sleep()
		}
	}
	for range 2 {
		b.until(van.EventMessage).Delivery.Release()
	}
}

// A peer whose messages wait for credit is gone: the van can sleep all the same, and a release wakes it.
func TestSleepWhileThePeerIsGoneAndCreditsAreOut(t *testing.T) {
	a, b, x, _ := pair(t, Options{Credits: 1})
	for i := range 3 {
		require.NoError(t, x.Send(message(van.OpID(i))))
	}
	held := b.until(van.EventMessage).Delivery
	require.NoError(t, a.v.Close())
	b.sleep()
	require.False(t, readable(t, b.v.FD()))
	held.Release()
	require.True(t, readable(t, b.v.FD()))
	held = b.until(van.EventMessage).Delivery
	b.sleep()
	held.Release()
	b.until(van.EventMessage).Delivery.Release()
	b.until(van.EventLost)
	b.until(van.EventDetached)
	b.sleep()
}

// What a peer puts into the socket costs the others nothing, and itself no more than sleep.
func TestFloodOfWakes(t *testing.T) {
	_, b, x, y := pair(t, Options{})
	good := newParty(t, Options{})
	z := good.dial(b.v.host.address(y.conn.van.listenerPath(t)))
	b.until(van.EventAccepted)
	flags, err := unix.FcntlInt(uintptr(x.conn.sock), unix.F_GETFL, 0)
	require.NoError(t, err)
	flood := func() {
		for unix.Sendto(x.conn.sock, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil {
			continue
		}
	}
	_, err = unix.FcntlInt(uintptr(x.conn.sock), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	require.NoError(t, err)
	for range 100 {
		flood()
		require.NoError(t, z.Send(message(1)))
		b.until(van.EventMessage).Delivery.Release()
	}
	y.conn.wakePeer() // into a full socket
	b.sleep()
	require.NoError(t, x.Send(message(1)))
	b.until(van.EventMessage).Delivery.Release()
}

// listenerPath is where the van listens.
func (v *shmVan) listenerPath(t *testing.T) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for l := range v.listeners {
		return l.path
	}
	require.FailNow(t, "the van does not listen")
	return ""
}

// A large payload is copied in pieces: a small message of another endpoint does not wait for the end of it.
func TestLargePayloadLetsOthersPass(t *testing.T) {
	for name, o := range map[string]Options{"mapped": {Files: memory()}, "foreign": {}} {
		t.Run(name, func(t *testing.T) {
			a, b, x, _ := pair(t, o)
			c := newParty(t, o)
			z := c.dial(b.v.host.address(b.v.listenerPath(t)))
			b.until(van.EventAccepted)
			large := shared(t, 3*maxPieceBytes+4711)
			for i := range large {
				large[i] = byte(i * 7)
			}
			require.NoError(t, x.Send(message(1, large[:100], large[100:])))
			ev := make([]van.Event, 4)
			require.Zero(t, b.v.Poll(ev, true))
			require.True(t, b.v.Moved())
			require.False(t, b.v.Arm(), "it must go on")
			require.NoError(t, z.Send(message(2)))
			first := b.until(van.EventMessage)
			require.Zero(t, first.Delivery.Header.Payload)
			first.Delivery.Release()
			second := b.until(van.EventMessage)
			second.Delivery.Release()
			require.Equal(t, large, b.room[:len(large)])
			require.Equal(t, van.OpID(1), a.until(van.EventCompletion).Op)
		})
	}
}
