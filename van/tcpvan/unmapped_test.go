package tcpvan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

// unmapped is memory that is gone. More memory behind it is gone too. The kernel puts mappings there first, so that
// nothing takes the place of this memory.
func unmapped(t *testing.T, n int) []byte {
	m, err := shm.Anonymous(8 << 20)
	require.NoError(t, err)
	b := m.Bytes()[:n]
	require.NoError(t, m.Close())
	return b
}

const ownMemory = "this process has unmapped the memory of a tensor in use, 65536 bytes at 0x"

type lostMemory [][]byte

func (l lostMemory) Place(_ van.Endpoint, _ *wire.Header, _ []byte, dst [][]byte) ([][]byte, error) {
	return append(dst, l...), nil
}

func TestTheSenderIsToldThatItsMemoryIsGone(t *testing.T) {
	for _, segments := range []int{1, sys.MaxIovecs} { // at once, and through the outbox
		a, b := newParty(t, Options{}), newParty(t, Options{})
		out, _ := connect(t, a, b, "127.0.0.1:0")
		payload := make([][]byte, segments)
		for i := range payload {
			payload[i] = []byte{1}
		}
		payload[segments-1] = unmapped(t, 1<<16)
		_ = out.Send(message(1, 0, payload...)) // it, or the completion, fails
		lost := func() bool { return len(a.got) > 0 && a.got[len(a.got)-1].Kind == van.EventLost }
		until(t, "the loss", lost, a, b)
		err := a.got[len(a.got)-1].Err
		require.ErrorContains(t, err, ownMemory)
		require.ErrorIs(t, err, stepvan.ErrPeerLost)
	}
}

func TestTheReceiverIsToldThatItsMemoryIsGone(t *testing.T) {
	a := newParty(t, Options{})
	b := newParty(t, Options{})
	staged := make([]byte, 1<<16) // more than is read with the head, so that the kernel alone writes to the rest
	b.opts.Placer = lostMemory{staged, unmapped(t, 1<<16)}
	out, _ := connect(t, a, b, "127.0.0.1:0")
	m := message(1, 0, make([]byte, 1<<17))
	require.NoError(t, out.Send(m))
	lost := func() bool { return len(b.got) > 0 && b.got[len(b.got)-1].Kind == van.EventLost }
	until(t, "the loss", lost, a, b)
	err := b.got[len(b.got)-1].Err
	require.ErrorContains(t, err, ownMemory)
	require.ErrorIs(t, err, stepvan.ErrPeerLost)
}
