package tcpvan

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// flat is m as it is on the wire.
func flat(m *van.Message) []byte {
	payload := bytes.Join(m.Payload, nil)
	padded := append(bytes.Clone(m.Head), zeros[:padding(len(m.Head), int64(len(payload)))]...)
	return append(padded, payload...)
}

// visit connects to b with a socket of Go's own, past any preamble, and writes what is given.
func visit(t testing.TB, b *party, bytes ...[]byte) (net.Conn, van.Endpoint) {
	t.Helper()
	c := call(t, b)
	for _, part := range bytes {
		_, err := c.Write(part)
		require.NoError(t, err)
	}
	return c, expect(t, van.EventAccepted, b).Endpoint
}

// call connects to b and says nothing.
func call(t testing.TB, b *party) net.Conn {
	t.Helper()
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	c, err := net.Dial("tcp", bound)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSeveralMessagesInOneRead(t *testing.T) {
	b := newParty(t, Options{})
	var all []byte
	for op := range 5 {
		all = append(all, flat(message(van.OpID(op), 10, pattern(100, op)))...)
	}
	_, in := visit(t, b, all)
	for op := range 5 {
		e := expect(t, van.EventMessage, b)
		require.Equal(t, in, e.Endpoint)
		require.Equal(t, uint64(op), e.Delivery.Header.Request)
		e.Delivery.Release()
	}
}

// The side that accepts must be able to call SetUser before anything else happens at the endpoint.
func TestAcceptedIsNotReadAtOnce(t *testing.T) {
	b := newParty(t, Options{})
	c := call(t, b)
	_, err := c.Write(flat(message(1, 0)))
	require.NoError(t, err)
	for end := time.Now().Add(limit); b.poll(true) == 0 && time.Now().Before(end); {
	}
	require.Len(t, b.got, 1)
	require.Equal(t, van.EventAccepted, b.got[0].Kind)
	require.Equal(t, 1, b.poll(true))
	require.Equal(t, van.EventMessage, b.got[1].Kind)
}

func TestMetaLargerThanStaging(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	for _, meta := range []int{100_000, 1 << 20, 30} {
		m := message(3, meta, pattern(500, 1))
		require.NoError(t, out.Send(m))
		d := expect(t, van.EventMessage, b, a).Delivery
		require.True(t, bytes.Equal(m.Head[wire.HeaderSize:], d.Meta))
		require.True(t, bytes.Equal(pattern(500, 1), b.memory.bytes()))
		d.Release()
	}
}

func TestPlacerRefuses(t *testing.T) {
	no := errors.New("no room")
	for _, size := range []int{defaultInMessage + 1, 5 << 20} {
		a, b := newParty(t, Options{Rails: 2}), newParty(t, Options{})
		out, _ := connect(t, a, b, "127.0.0.1:0")
		b.memory.err = no
		m := message(1, 9, make([]byte, size))
		send(t, out, m, a, b)
		d := expect(t, van.EventMessage, b, a).Delivery
		require.ErrorIs(t, d.Refused, no)
		require.Len(t, d.Meta, 9)
		d.Release()
		completed(t, m, a, b)
		b.memory.err = nil
		send(t, out, message(2, 0, pattern(size, 5)), a, b)
		d = expect(t, van.EventMessage, b, a).Delivery
		require.NoError(t, d.Refused)
		require.True(t, bytes.Equal(pattern(size, 5), b.memory.bytes()))
		d.Release()
	}
}

// shortPlacer gives another number of bytes than was asked for.
type shortPlacer int

func (p shortPlacer) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, make([]byte, int(h.Payload)+int(p))), nil
}

func TestPlacerGivesAnotherLength(t *testing.T) {
	for _, p := range []shortPlacer{-1, 1} {
		a := newParty(t, Options{})
		v, err := New(Options{Placer: p})
		require.NoError(t, err)
		b := &party{tcpVan: v.(*tcpVan)}
		defer func() { _ = v.Close() }()
		out, _ := connect(t, a, b, "127.0.0.1:0")
		require.NoError(t, out.Send(message(1, 0, make([]byte, defaultInMessage+1))))
		d := expect(t, van.EventMessage, b, a).Delivery
		require.ErrorIs(t, d.Refused, stepvan.ErrInvalid)
		d.Release()
	}
}

func TestPlacerCallsItProtocolError(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	b.memory.err = &stepvan.ProtocolError{Field: "key", Reason: "unknown"}
	require.NoError(t, out.Send(message(1, 0, make([]byte, defaultInMessage+1))))
	var pe *stepvan.ProtocolError
	require.ErrorAs(t, expect(t, van.EventLost, b, a).Err, &pe)
}

func TestPlacerClosesTheEndpoint(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, in := connect(t, a, b, "127.0.0.1:0")
	b.memory.hook = func(ep van.Endpoint) { require.NoError(t, ep.Close()) }
	m := message(5, 0)
	require.NoError(t, in.Send(m))
	require.NoError(t, out.Send(message(1, 0, make([]byte, defaultInMessage+1))))
	completed(t, m, b)
	until(t, "the loss", func() bool { return len(a.got) > 0 && a.got[len(a.got)-1].Kind == van.EventLost }, a, b)
	require.Empty(t, b.got)
}

func TestCredits(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{Credits: 2})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	for op := range 5 {
		require.NoError(t, out.Send(message(van.OpID(op), 0)))
	}
	first := expect(t, van.EventMessage, b, a)
	second := expect(t, van.EventMessage, b, a)
	for range 20 {
		require.Zero(t, b.poll(true), "a third delivery with two credits")
	}
	second.Delivery.Release()
	third := expect(t, van.EventMessage, b, a) // wakes the sleeper in until
	require.Equal(t, uint64(2), third.Delivery.Header.Request)
	require.Equal(t, uint64(0), first.Delivery.Header.Request)
	first.Delivery.Release()
	third.Delivery.Release()
	for op := uint64(3); op < 5; op++ {
		e := expect(t, van.EventMessage, b, a)
		require.Equal(t, op, e.Delivery.Header.Request)
		e.Delivery.Release()
	}
}

// Messages that the peer sent before it closed arrive before the loss, even when credits are out.
func TestLossComesAfterWhatIsHeldBack(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{Credits: 1})
	out, _ := connect(t, a, b, "127.0.0.1:0")
	for op := range 3 {
		require.NoError(t, out.Send(message(van.OpID(op), 0)))
	}
	require.NoError(t, out.Close())
	for op := range 3 {
		e := expect(t, van.EventMessage, b)
		require.Equal(t, uint64(op), e.Delivery.Header.Request)
		for range 5 {
			require.Zero(t, b.poll(true))
		}
		e.Delivery.Release()
	}
	expect(t, van.EventLost, b)
}

// One endpoint with a lot to read does not keep another from being read.
func TestPollIsFair(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	bulk, _ := connect(t, a, b, "127.0.0.1:0")
	small, in := connect(t, a, b, "127.0.0.1:0")
	send(t, bulk, message(1, 0, make([]byte, 64<<20)), a)
	require.NoError(t, small.Send(message(2, 0)))
	e := expect(t, van.EventMessage, b, a)
	require.Equal(t, in, e.Endpoint)
	e.Delivery.Release()
	expect(t, van.EventMessage, b, a).Delivery.Release()
}
