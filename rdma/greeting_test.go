package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/internal/wire"
)

func TestGreetingsAreUnderstood(t *testing.T) {
	own := greeting{paths: 1}
	h := hello{slotBytes: 4096, messages: 16, records: recordSlots, word: 1 << 40, key: 7, ring: 1 << 41, ringKey: 1<<32 - 1}
	b := h.appendTo(own.encode())
	require.LessOrEqual(t, len(own.encode()), 56, "private data of a request")
	require.LessOrEqual(t, len(b), 196, "private data of an answer")
	var g greeting
	rest, err := g.decode(append(b, make([]byte, 100)...))
	require.NoError(t, err)
	var got hello
	require.NoError(t, got.decode(rest))
	require.Equal(t, h, got)
}

func TestGreetingsOfOtherPrograms(t *testing.T) {
	own := greeting{paths: 1}
	good := own.encode()
	var g greeting
	_, err := g.decode(good[:15])
	require.ErrorContains(t, err, "too short (got 15 bytes, want 16)")
	_, err = g.decode(patched(good, 0, 'X'))
	require.ErrorContains(t, err, "is not a stepvan peer")
	_, err = g.decode(patched(good, 4, wire.Version+1))
	var version *wire.VersionError
	require.ErrorAs(t, err, &version)
	require.EqualValues(t, wire.Version+1, version.Peer)
	_, err = g.decode(patched(good, 7, 2))
	require.ErrorContains(t, err, "path 0 of 2 (want 1 to 8) of connection 0x0")
}

func TestHellosOutOfBounds(t *testing.T) {
	h := hello{slotBytes: 4096, messages: 16, records: recordSlots, word: 1 << 40}
	good := h.appendTo(nil)
	var got hello
	require.ErrorContains(t, got.decode(good[:39]), "too short")
	require.ErrorContains(t, got.decode(patched(good, 1, 0)), "slots of 0 bytes")
	require.ErrorContains(t, got.decode(patched(good, 3, 1)), "slots of 16781312 bytes")
	require.ErrorContains(t, got.decode(patched(good, 4, 1)), "1 slots for messages")
	require.ErrorContains(t, got.decode(patched(good, 8, 0)), "0 slots for records")
	require.ErrorContains(t, got.decode(patched(good, 16, 1)), "a multiple of 8")
	require.ErrorContains(t, got.decode(append(good, 0, 1)), "1 bytes too many")
}

// A refusal says why, also that of a peer of another version.
func TestRefusalsSayWhy(t *testing.T) {
	own := greeting{paths: 1}
	refusal := func(private ...byte) error {
		return refusalOf(&verbs.ConnectionError{Device: "mlx5_0", Kind: verbs.Rejected, Status: 28, Private: private})
	}
	require.ErrorContains(t, refusal(append(own.encode(), reasonCrowded)...), "too many unknown peers")
	require.ErrorContains(t, refusal(append(own.encode(), reasonSystem)...), "see its log")
	require.ErrorContains(t, refusal(append(own.encode(), 200)...), "the peer refused the connection: by its program")
	require.ErrorContains(t, refusal(), "the peer refused the connection: by its program")
	var version *wire.VersionError
	require.ErrorAs(t, refusal(patched(own.encode(), 4, 99)...), &version)
	require.False(t, mayAnswerLater(version))
	require.True(t, mayAnswerLater(refusal(append(own.encode(), reasonCrowded)...)))
	require.False(t, mayAnswerLater(stepvan.ErrInvalid))
}

func TestAddresses(t *testing.T) {
	for _, s := range []string{"10.0.0.1:7", "host:0", "[::1]:65535", ":7"} {
		a, err := parseAddress(s)
		require.NoError(t, err)
		require.Equal(t, s, a.String())
		require.NoError(t, (*rdmaVan)(nil).Probe(s))
	}
	for _, s := range []string{"", "tcp://10.0.0.1:7", "host", "host:65536", "host:x"} {
		_, err := parseAddress(s)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
		require.Error(t, (*rdmaVan)(nil).Probe(s))
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	for _, o := range []Options{
		{}, {Placer: refuseAll{}, Slots: 3}, {Placer: refuseAll{}, SlotBytes: 5000}, {Placer: refuseAll{}, Retries: 7},
		{Placer: refuseAll{}, PendingTime: -1}, {Placer: refuseAll{}, SendRequests: 15}, {Placer: refuseAll{}, Credits: 65},
	} {
		_, err := New(o)
		require.ErrorIs(t, err, stepvan.ErrInvalid)
	}
}
