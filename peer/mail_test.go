package peer_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// mailLimit is how much unread mail a peer has room for in these tests.
const mailLimit = 2 << 20

func mailers(t testing.TB, n int) []*pairtest.PeerOfCluster {
	t.Helper()
	all := pairtest.NewPeers(t, pairtest.Options{}, n)
	for _, x := range all {
		peer.LimitMail(x.Peer, mailLimit)
	}
	return all
}

// fill sends mail to peer 0 until it has no room for unread messages, at most so many. It returns how many went.
func fill(t testing.TB, p *pairtest.PeerOfCluster, body []byte, most int) (n int) {
	t.Helper()
	for n < most {
		err := p.Mail(0, "topic", body)
		switch {
		case err == nil:
			n++
		case strings.Contains(err.Error(), "2048 KiB of unread messages"):
			require.ErrorIs(t, err, stepvan.ErrWouldBlock)
			return n
		default:
			require.ErrorIs(t, err, stepvan.ErrWouldBlock)
			runtime.Gosched() // it has not received them yet
		}
	}
	return n
}

// write sends so many messages to peer 0, as it reads others.
func write(t testing.TB, p *pairtest.PeerOfCluster, body []byte, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); n > 0; {
		if n -= fill(t, p, body, n); n > 0 {
			require.Less(t, time.Now(), deadline, "%d messages are left", n)
			runtime.Gosched()
		}
	}
}

// What nobody reads is bounded in bytes. Its sender learns that, and sends again when it was read. Nothing is lost.
func TestUnreadMailIsBounded(t *testing.T) {
	for _, c := range []struct{ size, want int }{{peer.MaxMail, mailLimit / (peer.MaxMail + 5)}, {0, mailLimit >> 10}} {
		for _, from := range []int{1, 0} { // 0: to itself
			all := mailers(t, 3)
			body := make([]byte, c.size)
			require.Equal(t, c.want, fill(t, all[from], body, 1<<20))
			require.NoError(t, all[2].Mail(0, "topic", nil), "others have room of their own")
			var read [3]atomic.Int32
			stop, err := all[0].Listen("topic", func(from stepvan.Rank, _ []byte) { read[from].Add(1) })
			require.NoError(t, err)
			write(t, all[from], body, c.want) // there is room for as many
			for deadline := time.Now().Add(30 * time.Second); read[from].Load() < int32(2*c.want) || read[2].Load() < 1; runtime.Gosched() {
				require.Less(t, time.Now(), deadline)
			}
			stop()
		}
	}
}

// requireReceived waits until one peer has received all that another one has sent to it.
func requireReceived(t testing.TB, to, from *pairtest.PeerOfCluster) {
	t.Helper()
	recv, err := to.Recv(empty(t, to, heap, 8).Strided(), from.Rank(), 1)
	require.NoError(t, err)
	send, err := from.Send(filled(t, from, heap, 8, 1).Strided(), to.Rank(), 1) // behind it
	require.NoError(t, err)
	require.NoError(t, send.Wait(pairtest.Context(t)))
	require.NoError(t, recv.Wait(pairtest.Context(t)))
}

// lose ends the session of peer 1 with peer 0, and returns when peer 1 knows. What it sends then goes over another one.
func lose(t testing.TB, all []*pairtest.PeerOfCluster) {
	t.Helper()
	witness, err := all[1].Recv(empty(t, all[1], heap, 8).Strided(), 0, 2)
	require.NoError(t, err)
	for _, s := range all[1].Transport.Sessions() {
		s.Drop(stepvan.ErrPeerLost)
	}
	require.ErrorIs(t, witness.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
	require.NoError(t, all[1].Connect(pairtest.Context(t), 0))
}

// A loss of the connection neither gives room that is not there, nor takes any for ever.
func TestUnreadMailOutlivesAConnection(t *testing.T) {
	all := mailers(t, 2)
	body := make([]byte, peer.MaxMail)
	const most = mailLimit / (peer.MaxMail + 5)
	require.Equal(t, most/2, fill(t, all[1], body, most/2))
	for range 3 {
		requireReceived(t, all[0], all[1])
		lose(t, all)
	}
	require.Equal(t, most-most/2, fill(t, all[1], body, most), "the other half")
	var read atomic.Int32
	stop, err := all[0].Listen("topic", func(stepvan.Rank, []byte) { read.Add(1) })
	require.NoError(t, err)
	defer stop()
	write(t, all[1], body, 2*most)
	requireReceived(t, all[0], all[1])
	require.EqualValues(t, 3*most, read.Load())
}

// Mail that is lost with its connection takes no room once the peers have another one.
func TestLostMailTakesNoRoom(t *testing.T) {
	all := mailers(t, 2)
	body := make([]byte, peer.MaxMail)
	const most = mailLimit / (peer.MaxMail + 5)
	var read atomic.Int32
	stop, err := all[0].Listen("topic", func(stepvan.Rank, []byte) { read.Add(1) })
	require.NoError(t, err)
	require.NoError(t, all[1].Connect(pairtest.Context(t), 0))
	for range 8 {
		write(t, all[1], body, most/3) // some of it may be under way
		lose(t, all)
	}
	stop()
	requireReceived(t, all[0], all[1]) // so peer 0 has been asked what it has read
	requireReceived(t, all[1], all[0]) // and has answered
	require.LessOrEqual(t, read.Load(), int32(8*(most/3)))
	room := fill(t, all[1], body, 2*most)
	require.Equal(t, most, room, "all that was read before the last loss has room")
}

// A listener that stops gets nothing more, also in the middle of what has waited. Its stop does not end a later one.
func TestAListenerStopsItself(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	for i := range 9 {
		require.NoError(t, p.Mail(0, "topic", []byte{byte(i)}))
	}
	var read []byte
	first, err := p.ListenWithStop("topic", func(stop func(), _ stepvan.Rank, body []byte) {
		if read = append(read, body...); len(read) == 4 {
			stop()
		}
	})
	require.NoError(t, err)
	require.Equal(t, []byte{0, 1, 2, 3}, read)
	stop, err := p.Listen("topic", func(_ stepvan.Rank, body []byte) { read = append(read, body...) })
	require.NoError(t, err)
	first()
	require.NoError(t, p.Mail(0, "topic", []byte{9}))
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, read)
	stop()
}
