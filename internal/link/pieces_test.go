package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/van"
)

func TestPieces(t *testing.T) {
	const piece = 100
	session := func(caps van.Caps) *Session {
		return &Session{node: &Transport{pieceBytes: piece}, caps: caps}
	}
	long := &Outbound{Channel: ChannelBulk, total: 100 * piece}
	short := &Outbound{Channel: ChannelBulk, total: wholePieces * piece}
	other := &Outbound{Channel: ChannelRequest, total: 1}

	s := session(van.Caps{})
	require.EqualValues(t, wholePieces*piece, s.pieceOf(long), "alone")
	s.enqueue(long)
	require.EqualValues(t, wholePieces*piece, s.pieceOf(long), "alone in its lane")
	s.enqueue(other)
	require.EqualValues(t, piece, s.pieceOf(long), "another one waits")
	require.EqualValues(t, piece, s.pieceOf(short))
	s.filled = 1 << ChannelBulk
	require.EqualValues(t, wholePieces*piece, s.pieceOf(short), "the other one is gone")
	for range companyPieces {
		require.EqualValues(t, piece, s.pieceOf(long), "another one may follow")
	}
	require.EqualValues(t, wholePieces*piece, s.pieceOf(long), "none followed")

	s = session(van.Caps{OneSided: true})
	require.EqualValues(t, wholePieces*piece, s.pieceOf(short))
	require.EqualValues(t, piece, s.pieceOf(long))
	short.exposed = true
	require.EqualValues(t, piece/2, s.pieceOf(short), "both sides copy at the same time")
}
