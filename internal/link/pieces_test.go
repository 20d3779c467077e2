package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

func TestPieces(t *testing.T) {
	const piece = 100
	session := func(caps van.Caps) *Session {
		s := &Session{transport: &Transport{options: Options{PieceBytes: piece}}, caps: caps}
		s.out.session = s
		return s
	}
	long := &Outbound{Channel: ChannelBulk, total: 100 * piece}
	short := &Outbound{Channel: ChannelBulk, total: wholePieces * piece}
	other := &Outbound{Channel: ChannelRequest, total: 1}

	s := session(van.Caps{})
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(long), "alone")
	s.out.enqueue(long)
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(long), "alone in its lane")
	s.out.enqueue(other)
	require.EqualValues(t, piece, s.out.pieceSize(long), "another one waits")
	require.EqualValues(t, piece, s.out.pieceSize(short))
	s.out.filled = 1 << ChannelBulk
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(short), "the other one is gone")
	for range interleavedPieces {
		require.EqualValues(t, piece, s.out.pieceSize(long), "another one may follow")
	}
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(long), "none followed")

	s = session(van.Caps{OneSided: true})
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(short))
	require.EqualValues(t, piece, s.out.pieceSize(long))
	short.saving.due = true
	require.EqualValues(t, piece/2, s.out.pieceSize(short), "both sides copy at the same time")

	short.saving.due = false
	s = session(van.Caps{OneSided: true, Offload: true})
	require.EqualValues(t, wholePieces*piece, s.out.pieceSize(long), "a device copies nothing within the call")
	s.out.enqueue(long)
	s.out.enqueue(other)
	require.EqualValues(t, piece, s.out.pieceSize(long), "another one waits")
}

// A device always has the next piece before it has moved the last one. Nothing waits for more than two of them.
func TestTwoPiecesAreInTheVan(t *testing.T) {
	const piece = 1 << 20
	for name, c := range map[string]struct {
		caps van.Caps
		most uint64
	}{
		"a van that copies within Send": {van.Caps{OneSided: true}, 2 * piece},
		"sockets":                       {van.Caps{}, 2 * piece},
		"a device":                      {van.Caps{OneSided: true, Offload: true}, 2 * wholePieces * piece},
	} {
		s := &Session{transport: &Transport{options: Options{PieceBytes: piece}}, caps: c.caps}
		s.out.session = s
		long, short := &Outbound{total: 100 * piece}, &Outbound{total: piece / 4}
		s.out.inVan = c.most - 1
		require.False(t, s.out.vanIsFull(long), name)
		s.out.inVan = c.most
		require.True(t, s.out.vanIsFull(long), name)
		require.False(t, s.out.vanIsFull(short), name)
	}
}

// An earlier answer than that to the last piece would set nothing free.
func TestTheLastPieceAsksForTheAcknowledgement(t *testing.T) {
	o := &Outbound{total: 10, Flags: wire.FlagTrace | wire.FlagAckNow}
	require.Equal(t, wire.FlagTrace, o.flagsOf(9))
	o.sent = 9
	require.Equal(t, wire.FlagTrace|wire.FlagAckNow, o.flagsOf(1))
	require.Equal(t, wire.FlagAckNow, (&Outbound{Flags: wire.FlagAckNow}).flagsOf(0), "a header alone")
}
