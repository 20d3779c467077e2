package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/worker"
)

// rawServer is a server that says whatever the test wants, and its worker.
type rawServer struct {
	w       *worker.Worker
	node    *Peer
	server  *Peer
	session *link.Session // of the server
}

func newRawServer(t *testing.T) *rawServer { return newRawServerOver(t, Mem()) }

func newRawServerOver(t *testing.T, v Van) *rawServer {
	o := Options{Van: v}
	p := &rawServer{node: NewPeer(t, o, "worker 0", 5), server: NewPeer(t, o, "server 0", 6)}
	addr := p.server.Listen(t, v)
	p.w = worker.New(p.node.Transport, worker.Options{})
	s, err := p.node.Transport.Dial(Context(t), []string{addr})
	require.NoError(t, err)
	require.NoError(t, p.w.Join(0, []worker.Server{{Rank: 0, Name: "server 0", Session: s}}))
	p.session = p.server.Session(t)
	return p
}

// asked sends a pull of two floats with key 1. It returns its handle, and the request as the server got it.
func (p *rawServer) asked(t *testing.T) (worker.Handle, *link.Inbound) {
	t.Helper()
	h, err := p.w.PushPull(nil, nil, List(Floats(t, 0, 0)), Keys(1))
	require.NoError(t, err)
	m := p.server.Take(t)
	require.Equal(t, link.ChannelRequest, m.Header.Channel)
	return h, m
}

func keyOf(keys ...wire.Descriptor) (b []byte) {
	for _, d := range keys {
		b = d.Append(b)
	}
	return b
}

func TestBrokenServersAreCutOff(t *testing.T) {
	good := keyOf(wire.KeyOf(1, 8))
	payload := [][]byte{make([]byte, 8)}
	stamped := func(b []byte) []byte { return wire.AppendStamps(append([]byte(nil), b...), [4]int64{}) }
	cases := []struct {
		name string
		out  link.Outbound
		id   uint64 // added to the request's
	}{
		{"unknown request", link.Outbound{Pulls: 1, Meta: good, Payload: payload}, 1},
		{"another generation", link.Outbound{Pulls: 1, Meta: good, Payload: payload}, 1 << 32},
		{"unknown request without payload", link.Outbound{}, 7},
		{"too few tensors", link.Outbound{}, 0},
		{"garbage", link.Outbound{Pulls: 1, Meta: []byte("garbage"), Payload: payload}, 0},
		{"another key", link.Outbound{Pulls: 1, Meta: keyOf(wire.KeyOf(2, 8)), Payload: payload}, 0},
		{"too small", link.Outbound{Pulls: 1, Meta: keyOf(wire.KeyOf(1, 4)), Payload: [][]byte{make([]byte, 4)}}, 0},
		{"too large", link.Outbound{Pulls: 1, Meta: keyOf(wire.KeyOf(1, 9)), Payload: [][]byte{make([]byte, 9)}}, 0},
		{"empty", link.Outbound{Pulls: 1, Meta: keyOf(wire.KeyOf(1, 0))}, 0},
		{"payload of another size", link.Outbound{Pulls: 1, Meta: good, Payload: [][]byte{make([]byte, 7)}}, 0},
		{"stamps without flag", link.Outbound{Pulls: 1, Meta: stamped(good), Payload: payload}, 0},
		{"flag without stamps", link.Outbound{Pulls: 1, Flags: wire.FlagTrace, Meta: []byte("short"), Payload: payload}, 0},
		{"pushes", link.Outbound{Pushes: 1, Pulls: 1, Meta: append(good, good...), Payload: payload}, 0},
		{"another op", link.Outbound{Op: 9, Pulls: 1, Meta: good, Payload: payload}, 0},
		{"error with payload", link.Outbound{Flags: wire.FlagError, Meta: []byte("no"), Payload: payload}, 0},
		{"garbage announced", link.Outbound{Channel: link.ChannelRegister, Op: wire.OpAnnounce, Pushes: 3, Meta: []byte("x")}, 0},
		{"announcement with payload", link.Outbound{Channel: link.ChannelRegister, Op: wire.OpAnnounce, Payload: payload}, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			p := newRawServer(t)
			h, m := p.asked(t)
			o := tc.out
			o.Request = m.Header.Request + tc.id
			if o.Channel == 0 {
				o.Channel = link.ChannelResponse
			}
			if o.Op == 0 {
				o.Op = wire.OpResponse
			}
			m.Release()
			require.NoError(t, p.session.Send(&o))
			err := h.Wait(Context(t))
			requireLost(t, err, "server 0")
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, err, &pe)
			require.Error(t, p.server.Loss(t))
			require.Zero(t, p.w.Stats().Outstanding)
		})
	}
}

// The goodbye to a broken server that does not read cannot be sent. Its session ends all the same.
func TestABrokenServerThatNeverReadsIsCutOff(t *testing.T) {
	p := newRawServerOver(t, TCP())
	stopped := p.server.StopReading(t)
	big, err := p.node.Memory.Zeros(tensor.Uint8, 64<<20)
	require.NoError(t, err)
	t.Cleanup(func() { Free(t, big) })
	_, err = p.w.PushPull(nil, nil, List(Floats(t, 0)), Keys(1))
	require.NoError(t, err)
	<-stopped
	h, err := p.w.PushPull(List(big), Keys(2), nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.session.Send(&link.Outbound{Channel: link.ChannelResponse, Op: 9}))
	requireLost(t, h.Wait(Context(t)), "server 0")
	require.ErrorIs(t, p.node.Loss(t), stepvan.ErrClosed)
}

func TestRemoteErrorNamesTheServer(t *testing.T) {
	p := newRawServer(t)
	h, m := p.asked(t)
	id := m.Header.Request
	m.Release()
	require.NoError(t, p.session.Send(&link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError,
		Request: id, Meta: []byte("no \x1b[31mroom"),
	}))
	err := h.Wait(Context(t))
	require.ErrorIs(t, err, stepvan.ErrRemote)
	require.EqualError(t, err, "push_pull over mem with server 0: stepvan: refused by peer: no  [31mroom")
	_, err = p.w.PushPull(nil, nil, List(Floats(t, 0, 0)), Keys(1))
	require.NoError(t, err, "the server is not lost")
}

func TestSecondAnswerIsABrokenServer(t *testing.T) {
	p := newRawServer(t)
	h, m := p.asked(t)
	o := link.Outbound{
		Channel: link.ChannelBulk, Op: wire.OpResponse, Request: m.Header.Request,
		Pulls: 1, Meta: keyOf(wire.KeyOf(1, 8)), Payload: [][]byte{make([]byte, 8)},
	}
	m.Release()
	second := o
	require.NoError(t, p.session.Send(&o))
	require.NoError(t, h.Wait(Context(t)))
	require.NoError(t, p.session.Send(&second))
	require.Error(t, p.server.Loss(t))
}

func TestRequestsCarryTheGenerationThatWasAnnounced(t *testing.T) {
	p := newRawServer(t)
	_, m := p.asked(t)
	require.Zero(t, m.Header.Generation)
	for _, g := range []uint32{3, 2, 0} { // generations only rise
		require.NoError(t, p.session.Send(&link.Outbound{
			Channel: link.ChannelRegister, Op: wire.OpAnnounce, Generation: g, Pushes: 1, Meta: keyOf(wire.KeyOf(1, 8)),
		}))
	}
	// The answer follows them on the same session.
	require.NoError(t, p.session.Send(&link.Outbound{
		Channel: link.ChannelResponse, Op: wire.OpResponse, Flags: wire.FlagError, Request: m.Header.Request,
	}))
	m.Release()
	require.Eventually(t, func() bool {
		_, m := p.asked(t)
		defer m.Release()
		return m.Header.Generation == 3
	}, WaitLimit, 1)
}
