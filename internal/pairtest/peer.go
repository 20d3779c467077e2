package pairtest

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
)

// Peer is an instance that speaks the link's protocol. A test chooses the messages above it.
type Peer struct {
	Instance
	link.BaseHandler
	opened chan *link.Session

	copies bool // it keeps copies of messages, and no memory of the link

	mu       sync.Mutex
	received []*link.Inbound
	lost     error
	stop     *readStop // begins with the next message
	changed  progress.Event
}

// readStop holds a driver up.
type readStop struct{ begun, over chan struct{} }

// NewPeer makes a peer over the van of o.
func NewPeer(t testing.TB, o Options, name string, id wire.PeerID) *Peer {
	t.Helper()
	p := &Peer{Instance: NewInstance(t, o, name, id), opened: make(chan *link.Session, 64)}
	for _, c := range []wire.Channel{link.ChannelRegister, link.ChannelRequest, link.ChannelResponse, link.ChannelBulk, link.ChannelPeer, link.ChannelPeerBulk} {
		p.Transport.Handle(c, p)
	}
	return p
}

// Opened implements link.Handler.
func (p *Peer) Opened(s *link.Session) error {
	p.opened <- s
	return nil
}

// Receive implements link.Handler. It keeps m, with copies of what is valid only now.
func (p *Peer) Receive(m *link.Inbound) (kept bool) {
	if p.copies {
		m = &link.Inbound{Session: m.Session, Header: m.Header, Meta: m.Meta, Payload: m.Payload}
	}
	m.Meta, m.Payload = slices.Clone(m.Meta), slices.Clone(m.Payload)
	p.mu.Lock()
	p.received = append(p.received, m)
	stop := p.stop
	p.stop = nil
	p.mu.Unlock()
	p.Transport.Engine().Set(&p.changed)
	if stop != nil {
		close(stop.begun)
		<-stop.over
	}
	return !p.copies
}

// StopReading has the next message hold the peer's driver up until the test ends: the peer reads nothing after it. The
// channel is closed when that message is there.
func (p *Peer) StopReading(t testing.TB) (begun <-chan struct{}) {
	d := &readStop{begun: make(chan struct{}), over: make(chan struct{})}
	t.Cleanup(func() { close(d.over) })
	p.mu.Lock()
	p.stop = d
	p.mu.Unlock()
	return d.begun
}

// Lost implements link.Handler.
func (p *Peer) Lost(_ *link.Session, err error) {
	p.mu.Lock()
	p.lost = err
	p.mu.Unlock()
	p.Transport.Engine().Set(&p.changed)
}

// Listen accepts connections and returns the address.
func (p *Peer) Listen(t testing.TB, v Van) string {
	t.Helper()
	bound, err := p.Transport.Listen(v.Addr(p.Name))
	require.NoError(t, err)
	return bound[0]
}

// Dial opens a session with s.
func (p *Peer) Dial(t testing.TB, s *Server) *link.Session {
	t.Helper()
	session, err := p.Transport.Dial(Context(t), []string{s.addr})
	require.NoError(t, err)
	return session
}

// DialPeer opens a session with a peer of a cluster.
func (p *Peer) DialPeer(t testing.TB, x *PeerOfCluster) *link.Session {
	t.Helper()
	session, err := p.Transport.Dial(Context(t), []string{x.Service.Addr})
	require.NoError(t, err)
	return session
}

// Session waits for a session that another instance opens.
func (p *Peer) Session(t testing.TB) *link.Session {
	t.Helper()
	select {
	case s := <-p.opened:
		return s
	case <-Context(t).Done():
		t.Fatal("no session was opened")
		return nil
	}
}

// Take waits for the next message.
func (p *Peer) Take(t testing.TB) *link.Inbound {
	t.Helper()
	var m *link.Inbound
	p.await(t, func() bool {
		if len(p.received) > 0 {
			m, p.received = p.received[0], p.received[1:]
		}
		return m != nil
	})
	return m
}

// Loss waits for the end of the session.
func (p *Peer) Loss(t testing.TB) (err error) {
	t.Helper()
	p.await(t, func() bool { err = p.lost; return err != nil })
	return err
}

func (p *Peer) await(t testing.TB, cond func() bool) {
	t.Helper()
	for {
		p.changed.Reset()
		p.mu.Lock()
		ok := cond()
		p.mu.Unlock()
		if ok {
			return
		}
		require.NoError(t, p.Transport.Engine().Wait(Context(t), &p.changed), "it never happened")
	}
}
