package link

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// door is a Handler that makes every peer a visitor, and tells of sessions.
type door struct {
	BaseHandler
	opened chan *Session
	lost   chan error
	driver func() // called by the driver with each message
}

func newDoor() *door { return &door{opened: make(chan *Session, 64), lost: make(chan error, 64)} }

func (h *door) Opened(s *Session) error {
	s.SetVisitor(true)
	h.opened <- s
	return nil
}

func (h *door) Receive(m *Inbound) (kept bool) {
	m.Session.SetVisitor(false)
	if h.driver != nil {
		h.driver()
	}
	return false
}

func (h *door) Lost(_ *Session, err error) { h.lost <- err }

func await[T any](t testing.TB, c chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(hostileBound):
		t.Fatal("nothing came")
	}
	return v
}

// newVisited is a node with a door, for at most so many visitors.
func newVisited(t testing.TB, visitors int, log zerolog.Logger) (addr string, h *door, n *Transport) {
	mem, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	n, err = NewTransport(Options{
		Vans:   []VanMaker{func(p van.Placer, _ func()) (van.Van, error) { return tcpvan.New(tcpvan.Options{Placer: p}) }},
		Memory: mem, Log: log, CreditBytes: 1 << 20, Visitors: visitors,
		Admit: func(id Identity) error {
			if id.Name != "mallory" {
				return errors.New("nobody knows " + id.Name)
			}
			return nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, mem.Close())
	})
	h = newDoor()
	return listen(t, n, h), h, n
}

// A peer that says hello and then nothing cannot keep a session that this side has closed.
func TestCloseEndsAPeerThatNeverAnswersTheHandshake(t *testing.T) {
	addr, h, _ := newVisited(t, 0, zerolog.Nop())
	a := attack(t, addr)
	a.hello()
	s := await(t, h.opened)
	require.NoError(t, s.Close("not wanted"))
	require.ErrorIs(t, await(t, h.lost), stepvan.ErrClosed)
	a.dropped()
}

// Such a peer cannot keep the session either when a message for it waits until it answers the handshake.
func TestCloseEndsAPeerThatSomethingWaitsFor(t *testing.T) {
	addr, h, _ := newVisited(t, 0, zerolog.Nop())
	a := attack(t, addr)
	a.hello()
	s := await(t, h.opened)
	require.NoError(t, s.Send(&Outbound{Channel: ChannelRequest}))
	require.NoError(t, s.Close("not wanted"))
	require.ErrorIs(t, await(t, h.lost), stepvan.ErrClosed)
	a.dropped()
}

// The goodbye to a peer that does not read cannot be sent, and neither can what was accepted before.
func TestBreakOffEndsAPeerThatNeverReads(t *testing.T) {
	for name, closed := range map[string]bool{"open": false, "closed before": true} {
		t.Run(name, func(t *testing.T) {
			addr, h, _ := newVisited(t, 0, zerolog.Nop())
			a := attack(t, addr)
			a.hello()
			s := await(t, h.opened)
			a.send(data(1), nil, nil) // it has answered the handshake
			require.NoError(t, s.Send(&Outbound{Channel: ChannelRequest, Payload: [][]byte{make([]byte, 64<<20)}}))
			if closed {
				require.NoError(t, s.Close("not wanted"))
			}
			s.BreakOff("not understood")
			require.ErrorIs(t, await(t, h.lost), stepvan.ErrClosed)
			a.dropped()
		})
	}
}

// A peer that reads learns the reason of BreakOff.
func TestBreakOffSaysGoodbye(t *testing.T) {
	addr, h, _ := newVisited(t, 0, zerolog.Nop())
	a := attack(t, addr)
	a.hello()
	s := await(t, h.opened)
	s.BreakOff("not understood")
	ask := data(1)
	ask.Flags = wire.FlagAckNow
	a.send(ask, nil, nil)
	for kind := wire.Kind(0); kind != wire.KindGoodbye; {
		kind = a.read().Kind
	}
	require.ErrorIs(t, await(t, h.lost), stepvan.ErrClosed)
}

func TestDropEndsASessionAtOnce(t *testing.T) {
	addr, h, _ := newVisited(t, 0, zerolog.Nop())
	a := attack(t, addr)
	a.hello()
	cause := errors.New("it has no business here")
	await(t, h.opened).Drop(cause)
	require.ErrorIs(t, await(t, h.lost), cause)
	a.dropped()
}

// The oldest visitor makes room for a newcomer. Members stay, whenever they came.
func TestVisitorsAreBounded(t *testing.T) {
	addr, h, n := newVisited(t, 3, zerolog.Nop())
	member := attack(t, addr)
	member.hello()
	await(t, h.opened)
	h2 := data(1)
	h2.Flags = wire.FlagAckNow
	member.send(h2, nil, nil) // makes it one
	require.EqualValues(t, 1, member.read().Ack)
	var visitors []*attacker
	for range 10 {
		a := attack(t, addr)
		a.hello()
		await(t, h.opened)
		visitors = append(visitors, a)
	}
	for _, a := range visitors[:7] {
		a.dropped()
	}
	for range 7 {
		require.ErrorContains(t, await(t, h.lost), "makes room")
	}
	require.Len(t, n.Sessions(), 4)
	for _, a := range append(visitors[7:], member) {
		ask := data(1)
		if ask.Flags = wire.FlagAckNow; a == member {
			ask.Sequence = 2
		}
		a.send(ask, nil, nil)
		require.Equal(t, ask.Sequence, a.read().Ack)
	}
}

// Unknown peers that send no whole message do not keep others out. Their number is bounded, too.
func TestStrangersAreBounded(t *testing.T) {
	addr, h, n := newVisited(t, 3, zerolog.Nop())
	var silent []net.Conn
	for range 10 {
		a := attack(t, addr)
		begin := make([]byte, wire.HeaderSize)
		hello := wire.Header{Kind: wire.KindHello}
		hello.Encode(begin, []byte{1})
		_, err := a.c.Write(begin) // without its meta
		require.NoError(t, err)
		silent = append(silent, a.c)
	}
	for _, c := range silent[:7] {
		(&attacker{t, c}).dropped()
	}
	a := attack(t, addr)
	a.hello()
	await(t, h.opened)
	require.Len(t, n.Sessions(), 1)
}

// rubbish opens so many connections at once. Each begins like a peer and continues with bytes that no peer sends. Then
// rubbish waits until the victim has closed them.
func rubbish(t testing.TB, addr string, connections int) {
	t.Helper()
	begin := make([]byte, wire.HeaderSize)
	hello := wire.Header{Kind: wire.KindHello}
	hello.Encode(begin, nil)
	begin = begin[:len(begin)-1]
	var all []*attacker
	for range connections {
		a := &attacker{t: t}
		var err error
		a.c, err = net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, a.c.SetDeadline(time.Now().Add(hostileBound)))
		_, err = a.c.Write(begin)
		require.NoError(t, err)
		all = append(all, a)
	}
	for _, a := range all {
		_, err := a.c.Write(make([]byte, wire.HeaderSize))
		require.NoError(t, err)
	}
	for _, a := range all {
		a.dropped()
		require.NoError(t, a.c.Close())
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestRubbishLeavesNoMemory(t *testing.T) {
	addr, h, n := newVisited(t, 0, zerolog.Nop())
	left := make(chan int, 1)
	h.driver = func() { left <- n.unknown.list.Len() }
	member := attack(t, addr)
	member.hello()
	const waves, connections = 10, 400
	rubbish(t, addr, 10)
	before := heap()
	for range waves {
		rubbish(t, addr, connections)
	}
	// The driver may still have to hear of the last ones.
	stay, until := 1, time.Now().Add(hostileBound)
	for seq := uint64(1); stay > 0 && time.Now().Before(until); seq++ {
		member.send(data(seq), nil, nil)
		stay = await(t, left)
	}
	require.Zero(t, stay, "strangers that have gone stay until the next one comes")
	require.Less(t, (heap()-before)/(waves*connections), int64(250), "bytes that stay of each connection")
}

// counts counts the lines of a log.
type counts struct {
	mu sync.Mutex
	// +checklocks:mu
	lines []string
}

func (c *counts) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, string(p))
	return len(p), nil
}

func TestRefusalsDoNotFloodTheLog(t *testing.T) {
	const refused = 300
	var log counts
	addr, _, n := newVisited(t, 0, zerolog.New(&log))
	for range refused {
		a := attack(t, addr)
		a.send(wire.Header{Kind: wire.KindHello}, appendIdentity(nil, Identity{Name: "eve"}, 1), nil)
		require.Equal(t, wire.KindRefuse, a.read().Kind)
		require.NoError(t, a.c.Close())
	}
	require.NoError(t, n.Close())
	log.mu.Lock()
	defer log.mu.Unlock()
	var warnings []string
	for _, l := range log.lines {
		if strings.Contains(l, `"level":"warn"`) {
			warnings = append(warnings, l)
		}
	}
	require.Len(t, warnings, refusalLines+1)
	require.Contains(t, warnings[0], "nobody knows eve")
	require.Contains(t, warnings[refusalLines], "290 more connections were refused")
}
