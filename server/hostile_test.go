package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/tensor"
)

// float returns the descriptor of one float.
func float(k tensor.Key) wire.Descriptor {
	return wire.Descriptor{Key: k, Bytes: 4, DType: tensor.Float32, Shape: tensor.ShapeOf(1)}
}

// withRaw makes a server with two workers. The first one is a peer that sends what the test wants.
func withRaw(t *testing.T, policy stepvan.Policy) (*Cluster, *Peer, *link.Session) {
	v := Mem()
	c := New(t, Options{Workers: 2, Van: v, Server: server.Options{Policy: policy}})
	raw := c.Replace(t, Options{Van: v}, "raw")
	return c, raw, raw.Dial(t, c.Servers[0])
}

func TestBrokenWorkersAreCutOff(t *testing.T) {
	d := float(1)
	payload := [][]byte{make([]byte, 4)}
	for name, out := range map[string]link.Outbound{
		"garbage":              {Op: wire.OpRequest, Pushes: 1, Meta: []byte("garbage"), Payload: payload},
		"garbage, no payload":  {Op: wire.OpRequest, Pulls: 1, Meta: []byte("garbage")},
		"another op":           {Op: 99, Meta: d.Append(nil), Pushes: 1, Payload: payload},
		"more payload":         {Op: wire.OpRequest, Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{make([]byte, 5)}},
		"less payload":         {Op: wire.OpRequest, Pushes: 1, Meta: d.Append(nil)},
		"counts beyond meta":   {Op: wire.OpRequest, Pushes: 4000, Meta: d.Append(nil), Payload: payload},
		"surplus meta":         {Op: wire.OpRequest, Meta: d.Append(nil)},
		"half of a descriptor": {Op: wire.OpRequest, Pushes: 1, Meta: d.Append(nil)[:20], Payload: payload},
	} {
		t.Run(name, func(t *testing.T) {
			c, raw, session := withRaw(t, stepvan.AnyReady)
			out.Channel = link.ChannelRequest
			require.NoError(t, session.Send(&out))
			require.Error(t, raw.Loss(t))
			s := c.Servers[0]
			_, err := s.GetBatch(Context(t), stepvan.LockStep)
			requireGone(t, err, "worker 0")
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, err, &pe)
			h, _ := push(t, c.Workers[1], 1, 5)
			respond(t, s, take(t, s, stepvan.AnyReady)[0].ID, Floats(t, 6))
			require.NoError(t, h.Wait(Context(t)), "a bad peer costs its own connection only")
			require.Zero(t, s.Stats().Unanswered)
		})
	}
}

// The goodbye to a broken worker that does not read cannot be sent. Its session ends all the same.
func TestABrokenWorkerThatNeverReadsIsCutOff(t *testing.T) {
	v := TCP()
	c := New(t, Options{Workers: 2, Van: v})
	raw, s := c.Replace(t, Options{Van: v}, "raw"), c.Servers[0]
	session := raw.Dial(t, s)
	answer := func() server.RequestID {
		d := wire.KeyOf(1, 64<<20)
		require.NoError(t, session.Send(&link.Outbound{Channel: link.ChannelRequest, Op: wire.OpRequest, Pulls: 1, Meta: d.Append(nil)}))
		return take(t, s, stepvan.AnyReady)[0].ID
	}
	big, err := s.Memory.Zeros(tensor.Uint8, 64<<20)
	require.NoError(t, err)
	t.Cleanup(func() { Free(t, big) })
	stopped := raw.StopReading(t)
	_, err = s.Respond(List(big), answer())
	require.NoError(t, err)
	<-stopped
	raw.Take(t).Release()
	r, err := s.Respond(List(big), answer())
	require.NoError(t, err)
	require.NoError(t, session.Send(&link.Outbound{Channel: link.ChannelRequest, Op: 99}))
	require.ErrorIs(t, r.Wait(Context(t)), stepvan.ErrClosed)
}

func TestKeyPushedAgainBeforeItsAnswerIsRefused(t *testing.T) {
	c, raw, session := withRaw(t, stepvan.AnyReady)
	s := c.Servers[0]
	buffer := Floats(t, 0)
	reg, err := s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	raw.Take(t).Release() // the announcement
	d := float(1)
	send := func(id uint64, x float32) {
		one := Floats(t, x)
		require.NoError(t, session.Send(&link.Outbound{
			Channel: link.ChannelRequest, Op: wire.OpRequest, Request: id, Generation: reg.Generation(),
			Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{one.Bytes()},
		}))
	}
	send(1, 5)
	send(2, 6)
	m := raw.Take(t)
	require.EqualValues(t, 2, m.Header.Request)
	require.NotZero(t, m.Header.Flags&wire.FlagError)
	require.Contains(t, string(m.Meta), "before the last one was answered")
	m.Release()
	req := take(t, s, stepvan.DefaultPolicy)[0]
	require.Equal(t, []float32{5}, Values(t, req.Pushes()[0]), "refused, not raced")
	respond(t, s, req.ID)
}

func TestPeersThatAreNotPairedAreRefused(t *testing.T) {
	v := Mem()
	c := New(t, Options{Van: v})
	raw := NewPeer(t, Options{Van: v}, "stranger", 77)
	session := raw.Dial(t, c.Servers[0])
	d := float(1)
	for _, o := range []link.Outbound{
		{Pushes: 1, Meta: d.Append(nil), Payload: [][]byte{make([]byte, 4)}},
		{Pulls: 1, Meta: d.Append(nil)},
	} {
		o.Channel, o.Op, o.Request = link.ChannelRequest, wire.OpRequest, 3
		require.NoError(t, session.Send(&o))
		m := raw.Take(t)
		require.NotZero(t, m.Header.Flags&wire.FlagError)
		require.Contains(t, string(m.Meta), "not paired with stranger")
		m.Release()
	}
	require.Zero(t, c.Servers[0].Stats().Unanswered)
}

func TestWorkerLostInTheMiddleOfItsPush(t *testing.T) {
	c := New(t, Options{Van: WithFaults(Mem()), Link: func(o *link.Options) { o.PieceBytes = 4096 }})
	w, s := c.Workers[0], c.Servers[0]
	x, err := w.Memory.Zeros(tensor.Uint8, 8<<20)
	require.NoError(t, err)
	buffer, err := s.Memory.Zeros(tensor.Uint8, 8<<20)
	require.NoError(t, err)
	reg, err := s.RegisterRecvBuffer(buffer, ranks(0), Keys(1))
	require.NoError(t, err)
	h, err := w.PushPull(List(x), Keys(1), List(Floats(t, 0)), Keys(2))
	require.NoError(t, err)
	require.Equal(t, 1, c.Net.Cut("worker 0", "server 0"))
	require.ErrorIs(t, h.Wait(Context(t)), stepvan.ErrPeerLost)
	b, err := s.GetBatch(Context(t), stepvan.LockStep)
	if err == nil { // all of it had arrived
		_, err = s.Respond(List(Floats(t, 0)), b.Requests[0].ID)
		require.NoError(t, err)
	} else {
		requireGone(t, err, "worker 0")
		require.NotErrorIs(t, err, stepvan.ErrClosed, "a death is no orderly end")
	}
	require.Zero(t, s.Stats().Unanswered)
	require.NoError(t, reg.Unregister(), "its chunk is free")
	require.NoError(t, buffer.Region().Close())
	require.NoError(t, x.Region().Close())
}
