package link

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

func TestDialTellsThatThePeerSpeaksAnotherVersion(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b := make([]byte, wire.HeaderSize)
		h := wire.Header{Kind: wire.KindWelcome}
		h.Encode(b, nil)
		binary.LittleEndian.PutUint16(b[4:], 99)
		_, _ = c.Write(b)
		_, _ = io.Copy(io.Discard, c) // until the dialler has gone
	}()
	_, _, n := newVictim(t)
	ctx, cancel := context.WithTimeout(context.Background(), hostileBound)
	defer cancel()
	_, err = n.Dial(ctx, []string{"tcp://" + l.Addr().String()})
	var version *wire.VersionError
	require.ErrorAs(t, err, &version)
	require.Equal(t, uint16(99), version.Peer)
	require.Equal(t, uint16(wire.Version), version.Own)
}

// step is a step of Transport.Dial.
type step uint8

const (
	stepDial   step = iota // the van has connected, and Dial has not heard of it
	stepAttach             // the connection gets its session
	stepHello              // the hello is handed to the van
	steps
)

// refusing is a van whose peers refuse the one that dials. It reports what its peer does during one step.
type refusing struct {
	at    step
	event van.Event // what the peer does, without the endpoint
	fails error     // of Send
	wake  func()

	mu sync.Mutex
	// +checklocks:mu
	due []van.Event
	// +checklocks:mu
	once    sync.Once
	handled chan struct{} // closed when the transport has dealt with what the peer does
	closing chan struct{} // the transport closes the endpoint
}

// refusal is the endpoint of a refusing van.
type refusal struct {
	parts.UserValue
	v    *refusing
	once sync.Once
}

func (v *refusing) Caps() van.Caps {
	return van.Caps{Name: "refusing", MaxMeta: 1 << 16, MaxPayload: 1 << 16, MaxSegments: 16, Sound: true}
}
func (v *refusing) Listen(addr string) (string, error) { return addr, nil }
func (v *refusing) Arm() bool                          { v.mu.Lock(); defer v.mu.Unlock(); return len(v.due) == 0 }
func (v *refusing) FD() int                            { return -1 }
func (v *refusing) Close() error                       { return nil }

func (v *refusing) Dial(context.Context, string) (van.Endpoint, error) {
	e := &refusal{v: v}
	if v.during(stepDial, e) {
		<-v.handled
	}
	return e, nil
}

// during reports what the peer does, if this is the step for it.
func (v *refusing) during(at step, e *refusal) bool {
	if at != v.at {
		return false
	}
	event := v.event
	event.Endpoint = e
	v.mu.Lock()
	v.due = append(v.due, event)
	v.mu.Unlock()
	v.wake()
	return true
}

func (v *refusing) Poll(events []van.Event, _ bool) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.due != nil && len(v.due) == 0 {
		v.once.Do(func() { close(v.handled) })
	}
	n := copy(events, v.due)
	v.due = v.due[n:]
	return n
}

func (e *refusal) Peer() string { return "the peer" }

func (e *refusal) SetUser(s any) {
	e.v.during(stepAttach, e)
	e.UserValue.SetUser(s)
}

func (e *refusal) Send(m *van.Message) error {
	if e.v.during(stepHello, e) && e.v.closing != nil {
		<-e.v.closing
	}
	m.Done = e.v.fails == nil
	return e.v.fails
}

func (e *refusal) Close() error {
	if e.v.closing != nil {
		e.once.Do(func() { close(e.v.closing) })
	}
	return nil
}

// dialRefused dials a peer of a refusing van.
func dialRefused(t *testing.T, v *refusing) error {
	mem, err := tensor.NewAllocator(tensor.Options{})
	require.NoError(t, err)
	v.handled = make(chan struct{})
	maker := func(_ van.Placer, wake func()) (van.Van, error) {
		v.wake = wake
		return v, nil
	}
	n, err := NewTransport(Options{Vans: []VanMaker{maker}, Memory: mem, Log: zerolog.Nop()})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), hostileBound)
	defer cancel()
	_, err = n.Dial(ctx, []string{"refusing://peer"})
	require.NoError(t, n.Close())
	require.NoError(t, mem.Close())
	return err
}

// The loss may come at any step of Dial, and Send may have heard of it or not.
func TestDialTellsTheVersionWhereverTheLossComes(t *testing.T) {
	lost := van.Event{Kind: van.EventLost, Err: &wire.VersionError{Peer: 99, Own: wire.Version}}
	for at := range steps {
		for _, fails := range []error{nil, stepvan.ErrPeerLost} {
			err := dialRefused(t, &refusing{at: at, event: lost, fails: fails})
			var version *wire.VersionError
			require.ErrorAs(t, err, &version, "step %d, Send returns %v", at, fails)
			require.Equal(t, uint16(99), version.Peer)
		}
	}
}

// The driver closes the connection of a peer that has refused this side, and loses the session after that. A hello in
// between fails because the connection is closed, which is not the reason.
func TestDialTellsTheRefusalThatCrossesWithTheHello(t *testing.T) {
	for range 200 {
		d := &van.Delivery{Header: wire.Header{Kind: wire.KindRefuse}, Meta: wire.AppendText(nil, "not you"), Releaser: nowhere{}}
		d.Header.Meta = uint32(len(d.Meta))
		v := &refusing{at: stepHello, event: van.Event{Kind: van.EventMessage, Delivery: d}, fails: stepvan.ErrClosed, closing: make(chan struct{})}
		err := dialRefused(t, v)
		require.ErrorIs(t, err, stepvan.ErrRemote)
		require.ErrorContains(t, err, "not you")
	}
}

// nowhere takes deliveries back.
type nowhere struct{}

func (nowhere) ReleaseDelivery(*van.Delivery) {}
