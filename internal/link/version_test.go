package link

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
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
