package tcpvan

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

func patch(b []byte, at int, v ...byte) []byte {
	b = append([]byte(nil), b...)
	copy(b[at:], v)
	return b
}

// good is a preamble of a single rail.
func good() []byte { return (&preamble{count: 1, threshold: 1 << 20}).encode() }

func TestHostileStreams(t *testing.T) {
	whole := flat(message(1, 40, pattern(100, 1)))
	cases := []struct {
		name  string
		bytes []byte
		field string // of the ProtocolError
	}{
		{"text", []byte("GET / HTTP/1.1\r\n\r\n"), "magic"},
		{"one wrong byte, then silence", append(good(), 'x', 'y', 'z', 0, 0, 0), "magic"},
		{"preamble of no rails", patch(good(), 7, 0), "preamble count"},
		{"preamble of too many rails", patch(good(), 7, MaxRails+1), "preamble count"},
		{"rail outside", patch(good(), 6, 1), "preamble index"},
		{"no threshold", patch(good(), 8, 0, 0, 0, 0), "preamble threshold"},
		{"giant threshold", patch(good(), 8, 0xff, 0xff, 0xff, 0xff), "preamble threshold"},
		{"reserved", patch(good(), 12, 1), "preamble reserved"},
		{"garbage behind a preamble", append(good(), make([]byte, 500)...), "magic"},
		{"flipped bit", append(good(), patch(whole, 30, 99)...), "checksum"},
		{"flipped bit of the meta", append(good(), patch(whole, wire.HeaderSize+3, 99)...), "checksum"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newParty(t, Options{})
			conn, in := visit(t, b, c.bytes)
			e := expect(t, van.EventLost, b)
			require.Equal(t, in, e.Endpoint)
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, e.Err, &pe)
			require.Contains(t, pe.Field, c.field)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
			_, err := io.ReadAll(conn)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Zero(t, b.poll(true), "lost twice")
			require.NoError(t, in.Close())
		})
	}
}

// A peer of another version learns ours, in a header that its own decoder understands as such.
func TestOtherVersion(t *testing.T) {
	other := binary.LittleEndian.AppendUint16(nil, wire.Version+1)
	for name, hello := range map[string][]byte{
		"header":   append(good(), patch(flat(message(1, 40)), 4, other...)...),
		"preamble": patch(good(), 4, other...),
	} {
		t.Run(name, func(t *testing.T) {
			b := newParty(t, Options{})
			conn, _ := visit(t, b, hello)
			var ve *wire.VersionError
			require.ErrorAs(t, expect(t, van.EventLost, b).Err, &ve)
			require.Equal(t, wire.VersionError{Peer: wire.Version + 1, Own: wire.Version}, *ve)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
			answer := make([]byte, wire.HeaderSize)
			_, err := io.ReadFull(conn, answer)
			require.NoError(t, err)
			var h wire.Header
			require.NoError(t, h.Decode(answer, wire.DefaultLimits))
			require.NoError(t, wire.Verify(answer, nil))
			require.Equal(t, wire.KindRefuse, h.Kind)
		})
	}
}

// A peer of another version may be gone before this side has sent anything. The version is the reason of the loss, and
// not the failed send.
func TestOtherVersionIsTheReasonOfFailedSends(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix:@" + t.Name()} {
		t.Run(address, func(t *testing.T) {
			network, at := "tcp", address
			if local, ok := strings.CutPrefix(address, "unix:"); ok {
				network, at = "unix", local
			}
			l, err := net.Listen(network, at)
			require.NoError(t, err)
			defer func() { _ = l.Close() }()
			gone := make(chan error, 1)
			go func() { gone <- refuseVersion(l) }()
			if network == "tcp" {
				address = l.Addr().String()
			}
			a := newParty(t, Options{})
			out, err := a.Dial(t.Context(), address)
			require.NoError(t, err)
			require.NoError(t, <-gone)
			for err = nil; err == nil; {
				err = out.Send(message(1, 0)) // the first may succeed, and the answer to it is a reset
			}
			require.ErrorIs(t, err, stepvan.ErrPeerLost)
			e := expect(t, van.EventLost, a)
			var ve *wire.VersionError
			require.ErrorAs(t, e.Err, &ve)
			require.Equal(t, wire.VersionError{Peer: 99, Own: wire.Version}, *ve)
		})
	}
}

// refuseVersion answers the next preamble with a header of another version, and closes the connection.
func refuseVersion(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if _, err = io.ReadFull(c, make([]byte, preambleSize)); err == nil {
		_, err = c.Write(patch(flat(message(1, 0)), 4, 99, 0))
	}
	return errors.Join(err, c.Close())
}

// The van reports nothing about connections that end before they have said what they are.
func TestSilentVisitors(t *testing.T) {
	b := newParty(t, Options{})
	for _, said := range [][]byte{nil, good()[:1], good()[:preambleSize-1]} {
		c := call(t, b)
		_, err := c.Write(said)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	a := newParty(t, Options{})
	out, _ := connect(t, a, b, "127.0.0.1:0") // its EventAccepted is the only event
	require.NoError(t, out.Send(message(1, 0)))
	expect(t, van.EventMessage, b, a).Delivery.Release()
}
