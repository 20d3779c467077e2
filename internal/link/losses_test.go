package link

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// names is a Handler that tells the names of peers that are lost, and lets the test hold the driver up.
type names struct {
	BaseHandler
	held, free chan struct{}
	lost       chan string
	opened     chan *Session // nil: nobody asks
}

func (h *names) Opened(s *Session) error {
	s.transport.losses.pause = hostileBound // here, where the driver may
	if s.Peer().Name == "scheduler" {
		s.TellLossFirst()
	}
	if h.opened != nil {
		h.opened <- s
	}
	return nil
}

func (h *names) Receive(m *Inbound) (kept bool) {
	m.Release()
	h.held <- struct{}{}
	<-h.free
	return true
}

func (h *names) Lost(s *Session, err error) {
	h.lost <- s.Peer().Name + ": " + errors.Unwrap(err).Error()
}

// later is a van that is asked after another one.
type later struct{ van.Van }

func (l later) Caps() van.Caps {
	c := l.Van.Caps()
	c.Name = "later"
	return c
}

// listenTwice has a node with two vans listen on both.
func listenTwice(t *testing.T, h Handler) (addrs []string) {
	mem, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	tcp := func(p van.Placer, _ func()) (van.Van, error) { return tcpvan.New(tcpvan.Options{Placer: p}) }
	n, err := NewTransport(Options{
		Vans: []VanMaker{tcp, func(p van.Placer, wake func()) (van.Van, error) {
			v, err := tcp(p, wake)
			return later{v}, err
		}},
		Memory: mem, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close())
	})
	n.Handle(ChannelRequest, h)
	for _, scheme := range []string{"tcp://", "later://"} {
		bound, err := n.Listen(scheme + "127.0.0.1:0")
		require.NoError(t, err)
		addrs = append(addrs, strings.TrimPrefix(bound[0], scheme))
	}
	return addrs
}

// Several peers go at one moment. The one that matters to the others is lost first, though its van is polled last.
func TestLossesThatComeTogether(t *testing.T) {
	for name, leave := range map[string]func(*attacker){
		"broken": func(a *attacker) { _ = a.c.Close() },
		"goodbye": func(a *attacker) {
			a.send(wire.Header{Kind: wire.KindGoodbye, Ack: 0}, wire.AppendText(nil, "its own reasons"), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &names{held: make(chan struct{}), free: make(chan struct{}), lost: make(chan string, 8)}
			addrs := listenTwice(t, h)
			var peers []*attacker
			for i, name := range []string{"worker", "scheduler"} {
				a := attack(t, addrs[i])
				a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{Name: name}, 1<<20), nil)
				require.Equal(t, wire.KindWelcome, a.read().Kind)
				peers = append(peers, a)
			}
			peers[1].send(data(1), nil, nil) // so that the van of the worker is asked next
			<-h.held
			require.NoError(t, peers[1].c.Close())
			leave(peers[0])
			close(h.free)
			require.Contains(t, await(t, h.lost), "scheduler: ")
			require.Contains(t, await(t, h.lost), "worker: ")
		})
	}
}

// A peer that goes without a goodbye may do so because of another one, whose loss is not known yet. Its loss waits. The
// loss of a peer that says goodbye does not wait.
func TestUnexplainedLossesWaitForTheirCause(t *testing.T) {
	h := &names{held: make(chan struct{}, 8), free: make(chan struct{}), lost: make(chan string, 8)}
	close(h.free)
	addrs := listenTwice(t, h)
	peers := map[string]*attacker{}
	for _, name := range []string{"worker", "leaver", "scheduler", "other"} {
		a := attack(t, addrs[0])
		a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{Name: name}, 1<<20), nil)
		require.Equal(t, wire.KindWelcome, a.read().Kind)
		peers[name] = a
	}
	require.NoError(t, peers["worker"].c.Close())
	peers["other"].send(data(1), nil, nil)
	<-h.held
	peers["leaver"].send(wire.Header{Kind: wire.KindGoodbye}, wire.AppendText(nil, "its own reasons"), nil)
	require.Contains(t, await(t, h.lost), "leaver: ")
	require.NoError(t, peers["scheduler"].c.Close())
	require.Contains(t, await(t, h.lost), "scheduler: ")
	require.Contains(t, await(t, h.lost), "worker: ")

	require.NoError(t, peers["other"].c.Close()) // no session is left that may be the cause
	require.Contains(t, await(t, h.lost), "other: ")
}

func TestFirstCause(t *testing.T) {
	for err, want := range map[error]string{
		errors.New("because of x: y"): "",
		ErrLeft:                       "",
		&leftError{"it has stopped"}:  "",
		&leftError{"because of x"}:    "",
		fmt.Errorf("session: %w", &leftError{Because("worker 3", "because of hunger: it died")}): "worker 3",
	} {
		require.Equal(t, want, FirstCause(err), "%v", err)
	}
	long := strings.Repeat("x", 1000)
	require.Equal(t, long[:200]+"... (1000 bytes)", FirstCause(&leftError{Because(long, "y")}))
	require.Equal(t, `worker\x1b[31m 3`, FirstCause(&leftError{Because("worker\x1b[31m 3", "y")}))
	require.EqualError(t, &leftError{long}, "stepvan: peer left: "+long[:200]+"... (1000 bytes)")
	require.ErrorIs(t, &leftError{"x"}, ErrLeft)
	require.EqualError(t, &leftError{"x"}, "stepvan: peer left: x")
}

// TellLossFirst has no effect on it. Otherwise the count would never fall, and all other losses would wait.
func TestASessionThatIsLostLeadsNoOther(t *testing.T) {
	s := &Session{transport: &Transport{}, state: stateLost}
	s.TellLossFirst()
	require.Zero(t, s.transport.losses.first.Load())
}

func TestTheLossesOfStrangersDoNotWait(t *testing.T) {
	require.True(t, loss{session: &Session{}}.unknownToHandlers())
	require.False(t, loss{session: &Session{opening: opening{accepted: 1}}}.unknownToHandlers())
	require.False(t, loss{session: &Session{opening: opening{phase: phaseOpen}}}.unknownToHandlers())
}

// The loss of a peer waits for its cause, and Drop ends the session meanwhile. The loss keeps its turn, and the reason
// is what happened to the peer.
func TestASessionThatIsEndedWhileItsLossWaits(t *testing.T) {
	h := &names{held: make(chan struct{}, 8), free: make(chan struct{}), lost: make(chan string, 8), opened: make(chan *Session, 8)}
	close(h.free)
	addrs := listenTwice(t, h)
	peers, sessions := map[string]*attacker{}, map[string]*Session{}
	for _, name := range []string{"worker", "leaver", "scheduler", "other"} {
		a := attack(t, addrs[0])
		a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{Name: name}, 1<<20), nil)
		require.Equal(t, wire.KindWelcome, a.read().Kind)
		peers[name], sessions[name] = a, await(t, h.opened)
	}
	require.NoError(t, peers["worker"].c.Close())
	peers["leaver"].send(wire.Header{Kind: wire.KindGoodbye}, wire.AppendText(nil, "its own reasons"), nil)
	require.Contains(t, await(t, h.lost), "leaver: ") // the loss of the worker waits
	sessions["worker"].Drop(errors.New("it is not wanted"))
	peers["other"].send(data(1), nil, nil)
	<-h.held // the driver has been there since
	require.NoError(t, peers["scheduler"].c.Close())
	require.Contains(t, await(t, h.lost), "scheduler: ")
	lost := await(t, h.lost)
	require.Contains(t, lost, "worker: ")
	require.Contains(t, lost, "peer lost")
	require.NotContains(t, lost, "not wanted")
}
