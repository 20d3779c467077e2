package peer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// eachVan runs a test over every van.
func eachVan(t *testing.T, f func(t *testing.T, v pairtest.Van)) {
	for _, v := range pairtest.Vans() {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

// memory says where the views of a test are.
type memory int

const (
	heap   memory = iota // nobody else sees it
	shared               // in a memory file of the peer
)

// filled makes a tensor of bytes that depend on seed.
func filled(t testing.TB, p *pairtest.PeerOfCluster, where memory, n int64, seed uint64) *tensor.Tensor {
	t.Helper()
	x := empty(t, p, where, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for b := x.Bytes(); len(b) > 0; b = b[min(8, len(b)):] {
		v := r.Uint64()
		for i := range min(8, len(b)) {
			b[i] = byte(v >> (8 * i))
		}
	}
	return x
}

// empty makes a tensor of n bytes.
func empty(t testing.TB, p *pairtest.PeerOfCluster, where memory, n int64) *tensor.Tensor {
	t.Helper()
	if where == heap {
		x, err := tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(n), make([]byte, n))
		require.NoError(t, err)
		return &x
	}
	x, err := p.Memory.Zeros(tensor.Uint8, n)
	require.NoError(t, err)
	t.Cleanup(func() { pairtest.Free(t, x) })
	return &x
}

// columns is a view of some columns of a matrix with rows of width bytes.
func columns(t testing.TB, x *tensor.Tensor, width, from, n int64) tensor.Strided {
	t.Helper()
	v, err := x.AsStrided(tensor.ShapeOf(int64(x.Len())/width, n), []int64{width, 1}, from)
	require.NoError(t, err)
	return v
}

func TestSendAndRecv(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		for _, n := range []int64{0, 1, 8, 1000, 16 << 10, 16<<10 + 1, 100_000, 3 << 20} {
			for _, from := range []memory{heap, shared} {
				for _, to := range []memory{heap, shared} {
					src, dst := filled(t, all[0], from, n, uint64(n)), empty(t, all[1], to, n)
					recv, err := all[1].Recv(dst.Strided(), 0, 7)
					require.NoError(t, err)
					send, err := all[0].Send(src.Strided(), 1, 7)
					require.NoError(t, err)
					require.NoError(t, send.Wait(pairtest.Context(t)), "%d bytes", n)
					require.NoError(t, recv.Wait(pairtest.Context(t)), "%d bytes", n)
					require.Equal(t, src.Bytes(), dst.Bytes())

					send, err = all[0].Send(src.Strided(), 1, 8)
					require.NoError(t, err)
					clear(dst.Bytes())
					recv, err = all[1].Recv(dst.Strided(), 0, 8)
					require.NoError(t, err)
					require.NoError(t, recv.Wait(pairtest.Context(t)), "%d bytes", n)
					require.NoError(t, send.Wait(pairtest.Context(t)), "%d bytes", n)
					require.Equal(t, src.Bytes(), dst.Bytes())
				}
			}
		}
	})
}

func TestStridedTransfers(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		for _, width := range []int64{10, 600, 5000} {
			for _, where := range []memory{heap, shared} {
				n := (4 << 20) / width * width
				src, dst := filled(t, all[0], where, n, uint64(width)), empty(t, all[1], where, n)
				from, to := columns(t, src, width, 1, width/2), columns(t, dst, width, width/2, width/2)
				send, err := all[0].Send(from, 1, 0)
				require.NoError(t, err)
				recv, err := all[1].Recv(to, 0, 0)
				require.NoError(t, err)
				require.NoError(t, send.Wait(pairtest.Context(t)))
				require.NoError(t, recv.Wait(pairtest.Context(t)))
				want := make([]byte, n)
				for at := int64(0); at < n; at += width {
					copy(want[at+width/2:], src.Bytes()[at+1:][:width/2])
				}
				require.Equal(t, want, dst.Bytes())
			}
		}
	})
}

func TestTagsKeepTheirOrder(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		sizes := []int64{40_000, 8, 20_000, 100, 300_000, 0, 8}
		var srcs [][]byte
		for i, n := range sizes {
			for tag := range peer.Tag(2) {
				x := filled(t, all[0], memory(i%2), n, uint64(i)*2+uint64(tag))
				srcs = append(srcs, x.Bytes())
				_, err := all[0].Send(x.Strided(), 1, tag)
				require.NoError(t, err)
			}
		}
		for tag := peer.Tag(1); tag < 2; tag-- { // the second tag first
			for i, n := range sizes {
				dst := empty(t, all[1], heap, n)
				h, err := all[1].Recv(dst.Strided(), 0, tag)
				require.NoError(t, err)
				require.NoError(t, h.Wait(pairtest.Context(t)))
				require.Equal(t, srcs[2*i+int(tag)], dst.Bytes())
			}
		}
	})
}

func TestPeersDialEachOtherAtOnce(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		const n = 6
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, n)
		var g errgroup.Group
		for _, x := range all {
			g.Go(func() error {
				ranks := make([]stepvan.Rank, n)
				for i := range ranks {
					ranks[i] = stepvan.Rank(i)
				}
				return x.Connect(pairtest.Context(t), ranks...)
			})
		}
		require.NoError(t, g.Wait())
		for _, x := range all {
			require.Len(t, x.Transport.Sessions(), n-1, "one session for each pair")
		}
	})
}

// dialCounts are what the dials of the peers of a test do.
type dialCounts struct{ most, refused, all atomic.Int32 }

// watch counts the dials of a peer.
func (c *dialCounts) watch(o *peer.Options) {
	dial := o.Dial
	var mine atomic.Int32
	o.Dial = func(ctx context.Context, rank stepvan.Rank) (*link.Session, error) {
		n := mine.Add(1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		defer mine.Add(-1)
		c.all.Add(1)
		s, err := dial(ctx, rank)
		if errors.Is(err, stepvan.ErrRemote) {
			c.refused.Add(1)
		}
		return s, err
	}
}

// Each pair has one dial, that of the lower rank, however many peers connect at once.
func TestManyPeersConnectWithoutRefusals(t *testing.T) {
	const n = 16
	var c dialCounts
	all := pairtest.NewPeers(t, pairtest.Options{Peer: func(o *peer.Options) {
		c.watch(o)
		o.HeadStart = time.Hour
	}}, n)
	ranks := make([]stepvan.Rank, n)
	for i := range ranks {
		ranks[i] = stepvan.Rank(i)
	}
	var g errgroup.Group
	for _, x := range all {
		g.Go(func() error { return x.Connect(pairtest.Context(t), ranks...) })
	}
	require.NoError(t, g.Wait())
	require.Zero(t, c.refused.Load())
	require.EqualValues(t, n*(n-1)/2, c.all.Load())
	require.LessOrEqual(t, c.most.Load(), int32(8), "in flight at once")
	require.Greater(t, c.most.Load(), int32(0))
}

// A peer that needs a session dials at once, also the higher rank of a pair.
func TestOperationsDoNotWaitForTheOtherSide(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{Peer: func(o *peer.Options) { o.HeadStart = time.Hour }}, 3)
	connected := make(chan error, 1)
	go func() { connected <- all[2].Connect(pairtest.Context(t), 0) }() // waits for peer 0
	require.NoError(t, all[2].Mail(0, "a", nil))
	require.NoError(t, <-connected)
	src, dst := filled(t, all[2], heap, 100_000, 1), empty(t, all[1], heap, 100_000)
	send, err := all[2].Send(src.Strided(), 1, 1)
	require.NoError(t, err)
	recv, err := all[1].Recv(dst.Strided(), 2, 1)
	require.NoError(t, err)
	require.NoError(t, errors.Join(recv.Wait(pairtest.Context(t)), send.Wait(pairtest.Context(t))))

	// Without a need it dials when the head start is over.
	all = pairtest.NewPeers(t, pairtest.Options{Peer: func(o *peer.Options) { o.HeadStart = time.Millisecond }}, 2)
	require.NoError(t, all[1].Connect(pairtest.Context(t), 0))
}

func TestSendToItself(t *testing.T) {
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	for _, n := range []int64{0, 8, 100_000} {
		src, dst := filled(t, p, heap, n, 1), empty(t, p, heap, n)
		send, err := p.Send(src.Strided(), 0, 1)
		require.NoError(t, err)
		require.False(t, send.Done())
		recv, err := p.Recv(dst.Strided(), 0, 1)
		require.NoError(t, err)
		require.NoError(t, recv.Wait(pairtest.Context(t)))
		require.NoError(t, send.Wait(pairtest.Context(t)))
		require.Equal(t, src.Bytes(), dst.Bytes())
	}
}

func TestTransfersThatDoNotFit(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 2)
		src, dst := filled(t, all[0], shared, 100_000, 1), empty(t, all[1], shared, 99_999)
		send, err := all[0].Send(src.Strided(), 1, 1)
		require.NoError(t, err)
		recv, err := all[1].Recv(dst.Strided(), 0, 1)
		require.NoError(t, err)
		for _, h := range []peer.Handle{send, recv} {
			var m *peer.MismatchError
			require.ErrorAs(t, h.Wait(pairtest.Context(t)), &m)
			require.ErrorIs(t, h.Err(), stepvan.ErrInvalid)
			require.Contains(t, m.Error(), "uint8[100000]")
			require.Contains(t, m.Error(), "uint8[99999]")
			require.Contains(t, m.Error(), "tag 1")
		}
		small := empty(t, all[1], heap, 7)
		eight, err := src.Slice(0, 8)
		require.NoError(t, err)
		_, err = all[0].Send(eight.Strided(), 1, 1)
		require.NoError(t, err)
		recv, err = all[1].Recv(small.Strided(), 0, 1)
		require.NoError(t, err)
		var m *peer.MismatchError
		require.ErrorAs(t, recv.Wait(pairtest.Context(t)), &m)

		again := empty(t, all[1], heap, 100_000) // and the session still works
		_, err = all[0].Send(src.Strided(), 1, 1)
		require.NoError(t, err)
		recv, err = all[1].Recv(again.Strided(), 0, 1)
		require.NoError(t, err)
		require.NoError(t, recv.Wait(pairtest.Context(t)))
		require.Equal(t, src.Bytes(), again.Bytes())
	})
}

func TestTheDeathOfAPeerFailsWhatNamesIt(t *testing.T) {
	eachVan(t, func(t *testing.T, v pairtest.Van) {
		all := pairtest.NewPeers(t, pairtest.Options{Van: v}, 3)
		big := filled(t, all[0], shared, 1<<20, 1)
		send, err := all[0].Send(big.Strided(), 2, 1)
		require.NoError(t, err)
		recv, err := all[0].Recv(empty(t, all[0], shared, 8).Strided(), 2, 1)
		require.NoError(t, err)
		other, err := all[0].Recv(empty(t, all[0], heap, 1<<20).Strided(), 1, 1)
		require.NoError(t, err)
		require.NoError(t, all[0].Connect(pairtest.Context(t), 1, 2))
		require.NoError(t, all[2].Transport.Abort())
		for _, h := range []peer.Handle{send, recv} {
			require.ErrorIs(t, h.Wait(pairtest.Context(t)), stepvan.ErrPeerLost)
			require.ErrorContains(t, h.Err(), "peer 2")
		}
		require.False(t, other.Done())
		_, err = all[1].Send(big.Strided(), 0, 1)
		require.NoError(t, err)
		require.NoError(t, other.Wait(pairtest.Context(t)))
	})
}

func TestCancel(t *testing.T) {
	all := pairtest.NewPeers(t, pairtest.Options{}, 2)
	dst := empty(t, all[0], heap, 8)
	first, err := all[0].Recv(dst.Strided(), 1, 1)
	require.NoError(t, err)
	second, err := all[0].Recv(dst.Strided(), 1, 1)
	require.NoError(t, err)
	require.True(t, all[0].Cancel(first))
	require.ErrorIs(t, first.Wait(pairtest.Context(t)), stepvan.ErrClosed)
	require.False(t, all[0].Cancel(first))
	src := filled(t, all[1], heap, 8, 1)
	_, err = all[1].Send(src.Strided(), 0, 1)
	require.NoError(t, err)
	require.NoError(t, second.Wait(pairtest.Context(t)))
	require.False(t, all[0].Cancel(second))
	require.Equal(t, src.Bytes(), dst.Bytes())
}

// A program that looks again and again leaves the only processor to the movers.
func TestLookingLeavesTheProcessorToTheMovers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := pairtest.NewPeers(t, pairtest.Options{}, 1)[0]
	const looks = 200 // take much less time than the scheduler of Go leaves to a goroutine
	for round := range 20 {
		src, dst := filled(t, p, heap, 100_000, uint64(round)), empty(t, p, heap, 100_000)
		_, err := p.Send(src.Strided(), 0, 1)
		require.NoError(t, err)
		recv, err := p.Recv(dst.Strided(), 0, 1)
		require.NoError(t, err)
		n := 0
		for ; n < looks && recv.WaitFor(0) != nil; n++ {
		}
		require.Less(t, n, looks, "round %d", round)
		require.Equal(t, src.Bytes(), dst.Bytes())
	}
}
