package tcpvan

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// tiny buffers make every larger message a row of partial writes and reads.
var tiny = Options{SocketBuffer: 32 << 10}

func TestPartialWrites(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix:@" + t.Name()} {
		for _, rails := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s/%d rails", addr, rails), func(t *testing.T) {
				o := tiny
				o.Rails, o.RailThreshold = rails, 8<<10
				a, b := newParty(t, o), newParty(t, o)
				b.memory.piece = 10_007
				out, _ := connect(t, a, b, addr)
				for op, size := range []int{1 << 20, 1, 300_001, 8 << 10, 8<<10 - 1, 0, 70_000} {
					payload := pattern(size, op)
					m := message(van.OpID(op), 50, cut(payload, 33_333)...)
					send(t, out, m, a, b)
					d := expect(t, van.EventMessage, b, a).Delivery
					require.Equal(t, uint64(op), d.Header.Request)
					require.True(t, size == 0 || bytes.Equal(payload, b.memory.bytes()), "%d bytes", size)
					d.Release()
					completed(t, m, a, b)
				}
			})
		}
	}
}

// More segments than one system call takes, at both ends.
func TestManySegments(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	b.memory.piece = 13
	out, _ := connect(t, a, b, "127.0.0.1:0")
	payload := pattern(3*sys.MaxIovecs*10, 3)
	segments := cut(payload, 10)
	segments = append(segments, nil, []byte{}) // empty ones are nothing special
	require.Greater(t, len(segments), 2*sys.MaxIovecs)
	send(t, out, message(1, 0, segments...), a, b)
	expect(t, van.EventMessage, b, a).Delivery.Release()
	require.True(t, bytes.Equal(payload, b.memory.bytes()))
}

func TestSendQueueIsBounded(t *testing.T) {
	o := tiny
	o.SendQueue = 4
	a, b := newParty(t, o), newParty(t, o)
	out, _ := connect(t, a, b, "127.0.0.1:0")
	payload := pattern(8<<20, 0)
	for op := range 4 {
		require.NoError(t, out.Send(message(van.OpID(op), 0, payload)))
	}
	require.ErrorIs(t, out.Send(message(9, 0, payload)), stepvan.ErrWouldBlock)
	for op := range 4 {
		expect(t, van.EventMessage, b, a).Delivery.Release()
		e := expect(t, van.EventCompletion, a, b)
		require.Equal(t, van.OpID(op), e.Op)
	}
	m := message(9, 0)
	require.NoError(t, out.Send(m))
	completed(t, m, a, b)
}

func TestSendRefuses(t *testing.T) {
	o := Options{Limits: wire.Limits{Meta: 100, Message: 1000, Tensors: 10}}
	a, b := newParty(t, o), newParty(t, o)
	out, _ := connect(t, a, b, "127.0.0.1:0")
	for name, m := range map[string]*van.Message{
		"no head":  {Head: make([]byte, wire.HeaderSize-1)},
		"meta":     message(1, 101),
		"payload":  message(1, 0, make([]byte, 500), make([]byte, 501)),
		"segments": message(1, 0, make([][]byte, maxSegments+1)...),
		"target":   {Head: make([]byte, wire.HeaderSize), Target: make([]van.Target, 1)},
	} {
		require.ErrorIs(t, out.Send(m), stepvan.ErrInvalid, name)
	}
	require.Zero(t, a.poll(true), "a rejected operation completed")
	require.NoError(t, out.Close())
	require.ErrorIs(t, out.Send(message(1, 0)), stepvan.ErrClosed)
}

func TestCloseFailsWhatIsNotSent(t *testing.T) {
	a, b := newParty(t, tiny), newParty(t, tiny)
	out, _ := connect(t, a, b, "127.0.0.1:0")
	require.NoError(t, out.Send(message(1, 0, make([]byte, 8<<20))))
	require.NoError(t, out.Send(message(2, 0)))
	require.NoError(t, a.Close())
	require.NoError(t, out.Close())
	for op := range 2 {
		e := expect(t, van.EventCompletion, a)
		require.Equal(t, van.OpID(op+1), e.Op)
		require.ErrorIs(t, e.Err, stepvan.ErrClosed)
		var oe *stepvan.OpError
		require.ErrorAs(t, e.Err, &oe)
		require.Equal(t, "tcp", oe.Van)
	}
	require.Zero(t, a.poll(true), "an endpoint closed here is not lost")
}

// The connection breaks while output waits: completions first, then the loss.
func TestLossFailsWhatIsNotSent(t *testing.T) {
	a, b := newParty(t, tiny), newParty(t, tiny)
	out, in := connect(t, a, b, "127.0.0.1:0")
	require.NoError(t, in.Send(message(7, 0)))
	require.NoError(t, out.Send(message(1, 0, make([]byte, 8<<20))))
	require.NoError(t, out.Send(message(2, 0)))
	require.NoError(t, in.Close())
	kinds := map[van.EventKind]int{}
	until(t, "the loss", func() bool {
		for len(a.got) > 0 {
			e := a.next()
			kinds[e.Kind]++
			switch e.Kind {
			case van.EventMessage:
				require.Equal(t, uint64(7), e.Delivery.Header.Request)
				e.Delivery.Release()
			case van.EventLost:
				require.Equal(t, 2, kinds[van.EventCompletion])
				require.ErrorIs(t, e.Err, stepvan.ErrPeerLost)
				return true
			}
		}
		return false
	}, a)
	require.ErrorIs(t, out.Send(message(3, 0)), stepvan.ErrPeerLost)
}
