package tcpvan

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// adopt gives one end of a socket pair to p as an endpoint and returns the other.
func adopt(t *testing.T, p *party) (raw int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ep := p.newEndpoint(fds[:1], maxThreshold, "socket pair")
	require.NoError(t, p.join(ep))
	return fds[1]
}

// sieve is a Placer whose memory never grows with what a peer announces.
type sieve struct {
	placed [][]byte // payloads not yet delivered
}

func (s *sieve) Place(_ van.Endpoint, h *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	if h.Payload > 1<<20 {
		return dst, errTooLarge
	}
	room := make([]byte, h.Payload)
	s.placed = append(s.placed, room)
	return append(dst, cut(room, 777)...), nil
}

// feed writes stream in pieces whose lengths cuts gives, polling between them,
// and returns what was delivered and why the connection was lost.
func feed(t *testing.T, stream, cuts []byte) (got []string, reason error) {
	s := &sieve{}
	v, err := New(Options{Placer: s, SmallBytes: 512, Limits: wire.Limits{Meta: 10_000, Message: 1 << 30, Tensors: 10}})
	require.NoError(t, err)
	defer func() { _ = v.Close() }()
	p := &party{tcpVan: v.(*tcpVan)}
	raw := adopt(t, p)
	look := func() {
		for p.poll(true) > 0 {
		}
		for len(p.got) > 0 {
			e := p.next()
			if e.Kind == van.EventLost {
				reason = e.Err
				continue
			}
			require.Equal(t, van.EventMessage, e.Kind)
			d := e.Delivery
			text := string(d.Meta)
			if d.Payload != nil {
				text += "|" + string(d.Payload)
			} else if d.Refused == nil && d.Header.Payload > 0 {
				text += "|" + string(s.placed[0])
				s.placed = s.placed[1:]
			}
			got = append(got, text)
			d.Release()
		}
	}
	for i := 0; len(stream) > 0 && reason == nil; i++ {
		n := len(stream)
		if i < len(cuts) {
			n = min(n, 1+int(cuts[i])*3)
		}
		k, err := unix.Write(raw, stream[:n])
		if err == nil {
			stream = stream[k:]
		}
		look()
	}
	require.NoError(t, unix.Close(raw))
	until(t, "the loss", func() bool { look(); return reason != nil }, p)
	return got, reason
}

// FuzzStream splits arbitrary bytes at arbitrary points. What the van delivers must
// not depend on the points, and it loses every connection in the end, once.
func FuzzStream(f *testing.F) {
	var valid []byte
	for op, size := range []int{0, 1, 300, 5000} {
		valid = append(valid, flat(message(van.OpID(op), size%97, pattern(size, op)))...)
	}
	f.Add(valid, []byte{0, 1, 2, 3, 50, 200})
	f.Add(valid[:len(valid)-1], []byte{42, 42, 0})
	f.Add(slices.Concat(valid, flat(message(9, 5, pattern(padFrom, 9))), valid), []byte{200, 200, 0, 1, 2})
	f.Add(patch(valid, wire.HeaderSize+5, 1, 2, 3), []byte{})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{1})
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		whole, _ := feed(t, stream, nil)
		parts, _ := feed(t, stream, cuts)
		require.Equal(t, len(whole), len(parts))
		for i := range whole {
			require.True(t, bytes.Equal([]byte(whole[i]), []byte(parts[i])))
		}
	})
}

// A valid stream that is split at any single point delivers the same.
func TestStreamSplitAnywhere(t *testing.T) {
	stream := append(flat(message(1, 33, pattern(700, 1))), flat(message(2, 0))...)
	want, _ := feed(t, stream, nil)
	require.Len(t, want, 2)
	for at := range len(stream) - 1 {
		// A cut at a multiple of three plus one, then single bytes until the wanted place.
		cuts := append([]byte{byte(at / 3 % 256), byte(max(0, at/3-255))}, make([]byte, at%3)...)
		got, _ := feed(t, stream, cuts)
		require.Equal(t, want, got, "cut at %d", at)
	}
}

var errTooLarge = errors.New("too large")
