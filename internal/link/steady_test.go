package link_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/pairtest"
)

// pingPong bounces one message per call and does not allocate in the steady state.
type pingPong struct {
	p       *pair
	out     link.Outbound
	sent    *signal        // out may be used again
	answers chan *outgoing // those of b that may be used
	back    *signal
}

// outgoing is an answer that returns to the free answers when it is done.
type outgoing struct {
	link.Outbound
	free chan *outgoing
}

func (o *outgoing) Done(*link.Outbound, error) { o.free <- o }

func newPingPong(t testing.TB, p *pair, size int) *pingPong {
	pp := &pingPong{p: p, back: &signal{node: p.a}, sent: &signal{node: p.a}, answers: make(chan *outgoing, 64)}
	pp.out = link.Outbound{Channel: link.ChannelRequest, Meta: []byte("ping"), Payload: [][]byte{make([]byte, size)}, Completer: pp.sent}
	for range cap(pp.answers) {
		o := &outgoing{free: pp.answers}
		o.Outbound = link.Outbound{Channel: link.ChannelBulk, Meta: []byte("pong"), Payload: [][]byte{make([]byte, size)}, Completer: o}
		pp.answers <- o
	}
	place := func() func(*link.Inbound, [][]byte) ([][]byte, error) {
		into := make([]byte, size)
		return func(_ *link.Inbound, dst [][]byte) ([][]byte, error) { return append(dst, into), nil }
	}
	p.hb[link.ChannelRequest].use(place(), func(m *link.Inbound) {
		m.Release()
		select {
		case o := <-pp.answers:
			if err := p.sb.Send(&o.Outbound); err != nil {
				t.Error(err)
			}
		default:
			t.Error("no answer was ever done")
		}
	})
	p.ha[link.ChannelBulk].use(place(), func(m *link.Inbound) {
		m.Release()
		p.a.Engine().Set(&pp.back.ev)
	})
	return pp
}

func (pp *pingPong) once(t testing.TB) {
	pp.back.ev.Reset()
	pp.sent.ev.Reset()
	if err := pp.p.sa.Send(&pp.out); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*signal{pp.back, pp.sent} {
		if err := pp.p.a.Engine().WaitFor(bound, &s.ev); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		pp := newPingPong(t, newPair(t, k, nil), 8)
		for range 500 {
			pp.once(t)
		}
		require.Zero(t, testing.AllocsPerRun(500, func() { pp.once(t) }))
	})
}

func BenchmarkPingPong(b *testing.B) {
	for _, k := range kinds(b) {
		b.Run(k.Name, func(b *testing.B) {
			pp := newPingPong(b, newPair(b, k, nil), 8)
			b.ReportAllocs()
			for b.Loop() {
				pp.once(b)
			}
		})
	}
}

// On another channel of the same pair, small messages pass a large one that is on its way.
func TestSmallMessagesPassALargeTransfer(t *testing.T) {
	size := 256 << 20
	if pairtest.Race {
		size /= 4 // the race detector makes copies slower than that
	}
	forKinds(t, func(t *testing.T, k pairtest.Van) {
		p := newPair(t, k, nil)
		done := &signal{node: p.a}
		large := &link.Outbound{Channel: link.ChannelBulk, Payload: [][]byte{make([]byte, size)}, Completer: done}
		require.NoError(t, p.sa.Send(large))
		for _, c := range []int{int(link.ChannelControl), int(link.ChannelRequest)} {
			require.NoError(t, p.sa.Send(&link.Outbound{Channel: uint16ch(c), Meta: []byte("small")}))
			p.hb[c].take(t).Release()
		}
		hb := p.hb[link.ChannelBulk]
		hb.mu.Lock()
		passed := len(hb.got) == 0
		hb.mu.Unlock()
		require.True(t, passed, "the small messages waited for the large one")
		hb.take(t).Release()
		require.NoError(t, done.wait(t))
	})
}

func TestIdleNodeNoticesADeadPeerWhileNobodyWaits(t *testing.T) {
	k := pairtest.WithFaults(pairtest.Mem())
	p := newPair(t, k, nil)
	died := make(chan error, 1)
	h := p.ha[link.ChannelRequest]
	h.mu.Lock()
	h.onLost = func(err error) { died <- err }
	h.mu.Unlock()
	require.True(t, k.Net.Kill("b"))
	select { // a's engine is not waited on
	case err := <-died:
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
		require.ErrorContains(t, err, "b (")
	case <-time.After(bound):
		t.Fatal("nobody noticed")
	}
}

func TestThreadsDoNotGrowWithPeers(t *testing.T) {
	k := pairtest.TCP()
	b := newNode(t, k, "b", nil)
	hb := newEcho(b)
	hb.opened = make(chan *link.Session, 512)
	b.Handle(link.ChannelRequest, hb)
	addr, err := b.Listen(k.Addr("b"))
	require.NoError(t, err)
	a := newNode(t, k, "a", nil)
	a.Handle(link.ChannelRequest, newEcho(a))
	threads := func(sessions int) int {
		for range sessions {
			s, err := a.Dial(pairtest.Context(t), addr)
			require.NoError(t, err)
			require.NoError(t, s.Send(&link.Outbound{Channel: link.ChannelRequest}))
			hb.take(t).Release()
			<-hb.opened
		}
		tasks, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(tasks)
	}
	before := threads(8)
	require.LessOrEqual(t, threads(200), before+4, "threads grew with the number of peers")
}
