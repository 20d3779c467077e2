package tcpvan

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/van"
)

// Unknown peers make room for later ones, once they had their time. Known peers stay.
func TestUnknownPeersMakeRoom(t *testing.T) {
	const most = 3
	b := newParty(t, Options{Pending: most, PendingTime: 50 * time.Millisecond})
	bound, err := b.Listen("127.0.0.1:0")
	require.NoError(t, err)
	a := newParty(t, Options{})
	out, in := dial(t, a, b, bound)
	in.(van.Settler).Settle()
	var conns []net.Conn
	for range most * 3 {
		c, err := net.Dial("tcp", bound)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		hello(t, c, preamble{count: 1, threshold: 1})
		conns = append(conns, c)
	}
	accepted, lost := 0, 0
	for accepted < len(conns) || lost < len(conns)-most {
		until(t, "peers that come and go", func() bool { return len(b.got) > 0 }, b)
		switch e := b.next(); e.Kind {
		case van.EventAccepted:
			accepted++
		case van.EventLost:
			require.NotEqual(t, in, e.Endpoint)
			require.ErrorIs(t, e.Err, stepvan.ErrPeerLost)
			require.ErrorContains(t, e.Err, "makes room")
			lost++
		}
		require.LessOrEqual(t, b.poller.visitors.Len()+len(b.pending.list), most)
	}
	for _, c := range conns[:len(conns)-most] {
		closedByVan(t, c, b)
	}
	talk(t, a, b, out, in)
}

// The van forgets unknown peers that have gone, even when no other peer comes after them.
func TestUnknownPeersThatGoAreForgotten(t *testing.T) {
	b := newParty(t, Options{})
	c, _ := visit(t, b, good())
	require.Equal(t, 1, b.poller.visitors.Len())
	require.NoError(t, c.Close())
	expect(t, van.EventLost, b)
	_, in := visit(t, b, good())
	require.NoError(t, in.Close())
	until(t, "nobody", func() bool { return b.poller.visitors.Len() == 0 }, b)
}

// An endpoint has buffers only while its stream may be a peer's. They go even where a caller keeps the endpoint.
func TestBuffersOfEndpoints(t *testing.T) {
	b := newParty(t, Options{})
	for name, said := range map[string][]byte{
		"text": []byte("GET / HTTP/1.1\r\n\r\n"), "one byte": {0}, "no rails": patch(good(), 7, 0), "other version": patch(good(), 4, 99),
	} {
		t.Run(name, func(t *testing.T) {
			_, in := visit(t, b, said)
			ep := in.(*endpoint)
			require.Nil(t, ep.rd.buf)
			require.Nil(t, ep.credits)
			require.Nil(t, ep.w.out.ring)
			require.Error(t, in.Send(message(1, 0)))
			expect(t, van.EventLost, b)
		})
	}
	for name, end := range map[string]func(net.Conn, van.Endpoint){
		"closed":          func(_ net.Conn, in van.Endpoint) { _ = in.Close() },
		"closed by peer":  func(c net.Conn, _ van.Endpoint) { _ = c.Close() },
		"broken protocol": func(c net.Conn, _ van.Endpoint) { _, _ = c.Write([]byte("rubbish")) },
	} {
		t.Run(name, func(t *testing.T) {
			c, in := visit(t, b, good())
			ep := in.(*endpoint)
			require.NotNil(t, ep.rd.buf)
			require.NotNil(t, ep.credits)
			end(c, in)
			until(t, "the end", func() bool { return ep.state.Load()&ended != 0 }, b)
			b.got = nil
			require.Nil(t, ep.rd.buf)
			require.Nil(t, ep.credits)
		})
	}
}
