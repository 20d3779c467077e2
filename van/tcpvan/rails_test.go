package tcpvan

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

func TestShare(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, MaxRails} {
		for _, payload := range []int64{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1, 1<<40 + 12345, maxMessage} {
			for _, threshold := range []int{1, 1 << 20} {
				at := int64(0)
				for i := range n {
					from, to := share(payload, threshold, n, i)
					require.Equal(t, at, from)
					require.GreaterOrEqual(t, to, from)
					at = to
				}
				require.Equal(t, payload, at)
				_, to := share(payload, threshold, n, 0)
				require.True(t, payload >= int64(threshold) || to == payload, "cut below the threshold")
			}
		}
	}
}

func TestSpan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	all := pattern(5000, 0)
	for range 200 {
		var segs [][]byte
		for rest := all; len(rest) > 0; {
			n := min(r.IntN(700), len(rest)) // empty ones too
			segs = append(segs, rest[:n])
			rest = rest[n:]
		}
		from := r.Int64N(5001)
		to := from + r.Int64N(5001-from)
		s := spanOf(segs, from, to)
		var got []byte
		for s.left > 0 {
			b := s.next(segs, 1+r.IntN(700))
			require.NotEmpty(t, b)
			got = append(got, b...)
		}
		require.Empty(t, s.next(segs, 1))
		require.True(t, bytes.Equal(all[from:to], got))
		s = spanOf(segs, from, to)
		s.skip(segs, int(to-from))
		require.Zero(t, s.left)
	}
}

// hello says that it is a rail.
func hello(t *testing.T, c net.Conn, p preamble) {
	t.Helper()
	_, err := c.Write(p.encode())
	require.NoError(t, err)
}

// closedByVan polls until the van of b has closed c.
func closedByVan(t *testing.T, c net.Conn, b *party) {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		b.poll(true)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		n, err := c.Read(make([]byte, 1))
		require.Zero(t, n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		require.True(t, time.Now().Before(end), "the van keeps the connection")
	}
}

func TestRailsPair(t *testing.T) {
	b := newParty(t, Options{})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	// Two endpoints whose rails arrive mixed, and last first.
	var conns [2][3]net.Conn
	for i := 2; i >= 0; i-- {
		for k := range 2 {
			c, err := net.Dial("tcp", bound)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			require.Zero(t, b.poll(true))
			hello(t, c, preamble{index: i, count: 3, threshold: 1, nonce: nonce{byte(k + 1)}})
			conns[k][i] = c
			if i > 0 {
				continue
			}
			expect(t, van.EventAccepted, b)
			m := message(van.OpID(k), 5, pattern(10_000, k))
			for rail, part := range [][]byte{0: m.Payload[0][:4096], 1: m.Payload[0][4096:8192], 2: m.Payload[0][8192:]} {
				if rail == 0 {
					part = append(m.Head, part...)
				}
				_, err := conns[k][rail].Write(part)
				require.NoError(t, err)
			}
			d := expect(t, van.EventMessage, b).Delivery
			require.True(t, bytes.Equal(m.Payload[0], b.memory.bytes()))
			d.Release()
		}
	}
	_ = conns[0][2].Close()        // one rail of the first is lost:
	closedByVan(t, conns[0][0], b) // the van sends no more,
	late := message(7, 0)
	_, err = conns[0][0].Write(late.Head) // but takes what was on its way,
	require.NoError(t, err)
	expect(t, van.EventMessage, b).Delivery.Release()
	_ = conns[0][0].Close() // until rail 0 ends.
	require.ErrorIs(t, expect(t, van.EventLost, b).Err, stepvan.ErrPeerLost)
	closedByVan(t, conns[0][1], b)
	require.Zero(t, b.poll(true), "the second endpoint is not concerned")
}

// Between two vans the loss of any rail is the loss of the endpoint, on both sides.
func TestLossOfOneRail(t *testing.T) {
	for rail := range 3 {
		a, b := newParty(t, Options{Rails: 3}), newParty(t, Options{})
		out, in := connect(t, a, b, "127.0.0.1:0")
		talk(t, a, b, out, in)
		require.NoError(t, unix.Shutdown(out.(*endpoint).rails[rail].fd, unix.SHUT_RDWR))
		require.ErrorIs(t, expect(t, van.EventLost, b, a).Err, stepvan.ErrPeerLost)
		require.ErrorIs(t, expect(t, van.EventLost, a, b).Err, stepvan.ErrPeerLost)
	}
}

// The first rails to end do not take away what is on its way on the others.
func TestRailsEndOneByOne(t *testing.T) {
	o := tiny
	o.Rails, o.RailThreshold = 3, 1<<20
	a, b := newParty(t, o), newParty(t, o)
	out, _ := connect(t, a, b, "127.0.0.1:0")
	const n = 20
	for op := range n {
		send(t, out, message(van.OpID(op), 0, make([]byte, 100_000)), a)
	}
	until(t, "the first message", func() bool { return len(b.got) > 0 }, a, b)
	until(t, "all completions", func() bool { return len(a.got) == n }, a, b)
	require.NoError(t, out.Close())
	for range n {
		expect(t, van.EventMessage, b).Delivery.Release()
	}
	expect(t, van.EventLost, b)
}

func TestRailsThatDoNotFit(t *testing.T) {
	right := preamble{index: 1, count: 3, threshold: 100, nonce: nonce{1}}
	for name, wrong := range map[string]preamble{
		"twice":             right,
		"another count":     {index: 0, count: 2, threshold: 100, nonce: nonce{1}},
		"another threshold": {index: 0, count: 3, threshold: 99, nonce: nonce{1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newParty(t, Options{})
			bound, err := b.Listen("127.0.0.1:0")
			require.NoError(t, err)
			open := func(p preamble) net.Conn {
				c, err := net.Dial("tcp", bound)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				hello(t, c, p)
				return c
			}
			open(right)
			until(t, "the first rail", func() bool { return len(b.pending.list) == 1 && b.pending.list[0].said }, b)
			c := open(wrong)
			closedByVan(t, c, b)
			// The endpoint that was contradicted can still be completed.
			open(preamble{index: 0, count: 3, threshold: 100, nonce: nonce{1}})
			open(preamble{index: 2, count: 3, threshold: 100, nonce: nonce{1}})
			expect(t, van.EventAccepted, b)
			require.Empty(t, b.pending.list)
		})
	}
}

// Neither silence nor missing rails are waited for longer than PendingTime.
func TestPendingTime(t *testing.T) {
	b := newParty(t, Options{PendingTime: 20 * time.Millisecond})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	var conns []net.Conn
	for i := range 3 {
		c, err := net.Dial("tcp", bound)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		if i > 0 {
			hello(t, c, preamble{index: 0, count: 2, threshold: 1, nonce: nonce{byte(i)}})
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		closedByVan(t, c, b)
	}
	require.Empty(t, b.got)
	require.Empty(t, b.pending.list)
}

// A rail that goes away takes its half-made endpoint out of the table.
func TestHalfPairedRailLeaves(t *testing.T) {
	b := newParty(t, Options{})
	c := call(t, b)
	hello(t, c, preamble{index: 0, count: 2, threshold: 1, nonce: nonce{1}})
	until(t, "the rail", func() bool { return len(b.pending.list) == 1 && b.pending.list[0].said }, b)
	require.NoError(t, c.Close())
	until(t, "its end", func() bool { return len(b.pending.list) == 0 }, b)
}

// When the table is full, those that had their time make room for others.
func TestPendingIsBounded(t *testing.T) {
	b := newParty(t, Options{Pending: 2, PendingTime: 50 * time.Millisecond})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	for range 6 {
		c, err := net.Dial("tcp", bound)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
	}
	a := newParty(t, Options{})
	out, in := dial(t, a, b, bound)
	require.LessOrEqual(t, len(b.pending.list), 2)
	talk(t, a, b, out, in)
}

func FuzzPreamble(f *testing.F) {
	f.Add(good())
	f.Add((&preamble{index: 2, count: 3, threshold: 1 << 20, nonce: nonce{1, 2, 3}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var p preamble
		if len(b) < preambleSize || p.decode(b) != nil {
			return
		}
		require.True(t, p.index < p.count && p.count <= MaxRails && p.threshold > 0)
		require.Equal(t, b[:preambleSize], p.encode())
		require.True(t, startsWith(b, preambleMagic))
	})
}
