package tcpvan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// limit bounds every wait of these tests; none waits that long when nothing is wrong.
const limit = 20 * time.Second

// memory is a Placer that gives fresh memory in segments of at most piece bytes. It also has a copy of the last payload
// that came with its message.
type memory struct {
	piece int // 0 for one segment
	dst   [][]byte
	err   error
	hook  func(ep van.Endpoint)
}

func (m *memory) Place(ep van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	if m.hook != nil {
		m.hook(ep)
	}
	if m.err != nil {
		return dst, m.err
	}
	room := make([]byte, h.Payload)
	for m.piece > 0 && len(room) > m.piece {
		dst = append(dst, room[:m.piece:m.piece])
		room = room[m.piece:]
	}
	dst = append(dst, room)
	m.dst = append(m.dst[:0], dst...)
	return dst, nil
}

func (m *memory) bytes() (b []byte) {
	for _, s := range m.dst {
		b = append(b, s...)
	}
	return b
}

// party is a van under test and what happened to it.
type party struct {
	*tcpVan
	memory *memory
	got    []van.Event
	buf    [8]van.Event
}

func newParty(t testing.TB, o Options) *party {
	t.Helper()
	m, ok := o.Placer.(*memory)
	if !ok {
		m = &memory{}
		o.Placer = m
	}
	v, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return &party{tcpVan: v.(*tcpVan), memory: m}
}

func (p *party) poll(all bool) int {
	n := p.Poll(p.buf[:], all)
	for _, e := range p.buf[:n] {
		if e.Kind == van.EventMessage && e.Delivery.Payload != nil && p.memory != nil {
			p.memory.dst = [][]byte{slices.Clone(e.Delivery.Payload)}
		}
	}
	p.got = append(p.got, p.buf[:n]...)
	return n
}

// next takes the oldest event that has not been looked at.
func (p *party) next() van.Event {
	e := p.got[0]
	p.got = p.got[1:]
	return e
}

// until polls the parties, sleeping on their descriptors, until done.
func until(t testing.TB, what string, done func() bool, parties ...*party) {
	t.Helper()
	end := time.Now().Add(limit)
	for !done() {
		busy := false
		for _, p := range parties {
			busy = p.poll(false)+p.poll(true) > 0 || !p.Arm() || busy
		}
		if busy || done() {
			continue
		}
		var fds []unix.PollFd
		asleep := true
		for _, p := range parties {
			asleep = p.Arm() && asleep
			fds = append(fds, unix.PollFd{Fd: int32(p.FD()), Events: unix.POLLIN})
		}
		if asleep {
			_, _ = unix.Poll(fds, int(time.Until(end)/time.Millisecond))
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// expect polls until p has an event of kind, which must be its next, and returns it.
func expect(t testing.TB, kind van.EventKind, p *party, others ...*party) van.Event {
	t.Helper()
	until(t, fmt.Sprintf("an event of kind %d", kind), func() bool { return len(p.got) > 0 }, append(others, p)...)
	e := p.next()
	require.Equal(t, kind, e.Kind, "%+v", e)
	return e
}

// connect dials from a to b and returns both ends.
func connect(t testing.TB, a, b *party, addr string) (out, in van.Endpoint) {
	t.Helper()
	bound, err := b.Listen(addr)
	require.NoError(t, err)
	return dial(t, a, b, bound)
}

func dial(t testing.TB, a, b *party, addr string) (out, in van.Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := a.Dial(ctx, addr)
	require.NoError(t, err)
	in = expect(t, van.EventAccepted, b).Endpoint
	in.SetUser("accepted")
	return out, in
}

func pattern(n, salt int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + salt)
	}
	return b
}

// message makes a message with the given payload, cut into segments.
func message(op van.OpID, meta int, segments ...[]byte) *van.Message {
	m := &van.Message{Op: op, Payload: segments, Head: make([]byte, wire.HeaderSize+meta)}
	total := 0
	for _, s := range segments {
		total += len(s)
	}
	copy(m.Head[wire.HeaderSize:], pattern(meta, int(op)))
	h := wire.Header{Kind: wire.KindData, Request: uint64(op), Payload: uint64(total), Total: uint64(total)}
	h.Encode(m.Head, m.Head[wire.HeaderSize:])
	return m
}

// cut splits b into segments of n bytes.
func cut(b []byte, n int) (s [][]byte) {
	for len(b) > n {
		s = append(s, b[:n])
		b = b[n:]
	}
	return append(s, b)
}

// send sends m, polling while the queue is full.
func send(t testing.TB, ep van.Endpoint, m *van.Message, parties ...*party) {
	t.Helper()
	until(t, "room to send", func() bool {
		err := ep.Send(m)
		if !errors.Is(err, stepvan.ErrWouldBlock) {
			require.NoError(t, err)
			return true
		}
		return false
	}, parties...)
}

// completed expects the completion of m, which Send has accepted, unless it has reported it.
func completed(t testing.TB, m *van.Message, p *party, others ...*party) {
	t.Helper()
	if m.Done {
		return
	}
	e := expect(t, van.EventCompletion, p, others...)
	require.Equal(t, m.Op, e.Op)
	require.NoError(t, e.Err)
}

func TestOneMessage(t *testing.T) {
	a, b := newParty(t, Options{}), newParty(t, Options{})
	out, in := connect(t, a, b, "127.0.0.1:0")
	payload := pattern(1000, 1)
	m := message(7, 33, payload)
	require.NoError(t, out.Send(m))
	e := expect(t, van.EventMessage, b)
	require.Equal(t, in, e.Endpoint)
	require.Equal(t, uint64(7), e.Delivery.Header.Request)
	require.Equal(t, pattern(33, 7), e.Delivery.Meta)
	require.True(t, bytes.Equal(payload, b.memory.bytes()))
	e.Delivery.Release()
	completed(t, m, a)
	require.NoError(t, in.Close())
	require.ErrorIs(t, expect(t, van.EventLost, a, b).Err, stepvan.ErrPeerLost)
}
