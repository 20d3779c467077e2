package peer_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/peer"
)

// Windows refuse what a peer may not do, and keep its session: a token may be old. Lies about windows of the liar fail
// only what uses them.
func TestLiesAboutWindows(t *testing.T) {
	l := newLiar(t, pairtest.OneSided())
	x := filled(t, l.all[0], shared, 1000, 1)
	w := expose(t, l.all[0], x.Strided(), peer.WindowOptions{})
	token := w.Token()
	window, key := binary.LittleEndian.Uint64(token[8:]), token[16:]
	refused := func(o uint8, key []byte, f []byte, at ...byte) string {
		t.Helper()
		require.NoError(t, l.tell(lie{op: o, request: window, meta: join(u64(33), key, f, at)}))
		m := l.take(peer.OpFail)
		require.EqualValues(t, 33, m.Header.Request)
		return string(m.Meta[10:])
	}
	require.Contains(t, refused(peer.OpGet, make([]byte, 16), form(t, 10), 0), "no such window")
	require.Contains(t, refused(peer.OpPut, key, form(t, 10), 0), "only be read")
	require.Contains(t, refused(peer.OpGet, key, form(t, 10), binary.AppendUvarint(nil, 991)...), "window")
	require.Contains(t, refused(peer.OpGet, key, form(t, 10), binary.AppendUvarint(nil, 1<<63+7)...), "window")
	require.Contains(t, refused(peer.OpGet, key, form(t, 1001), 0), "window")
	require.NoError(t, l.tell(lie{op: peer.OpNote, request: window, meta: key}), "it is passed over")

	// A window of the liar that is not what it says.
	for name, f := range map[string][]byte{
		"of others": formAt(t, 100, 900, 1, 0), "far away": formAt(t, 100, 1, 1, 1<<50),
	} {
		var own peer.Token
		copy(own[:], token[:])
		binary.LittleEndian.PutUint32(own[4:], 2)
		binary.LittleEndian.PutUint64(own[8:], 1<<32+uint64(len(name)))
		h, err := l.all[0].Get(empty(t, l.all[0], heap, 100).Strided(), own, nil)
		require.NoError(t, err)
		m := l.take(peer.OpAttach)
		require.NoError(t, l.tell(lie{op: peer.OpAttached, request: m.Header.Request, meta: join([]byte{3}, f)}))
		get := l.take(peer.OpGet) // it cannot be seen, so its owner is asked for it
		edge := binary.LittleEndian.Uint64(get.Meta)
		require.NoError(t, l.tell(lie{op: peer.OpChunk, bulk: true, request: edge, payload: make([]byte, 100)}))
		require.NoError(t, h.Wait(pairtest.Context(t)), name)
	}
	l.requireOthersWell()
	require.NoError(t, l.tell(lie{op: peer.OpReleased, request: window}))
	l.requireExpelled("")
	l.requireOthersWell()
}

// The sender of a window's elements may not send more, or to another number.
func TestLyingPuts(t *testing.T) {
	l := newLiar(t, pairtest.Mem())
	x := filled(t, l.all[0], heap, 100_000, 1)
	w := expose(t, l.all[0], x.Strided(), peer.WindowOptions{Rights: peer.RightRead | peer.RightWrite})
	token := w.Token()
	window, key := binary.LittleEndian.Uint64(token[8:]), token[16:]
	require.NoError(t, l.tell(lie{op: peer.OpPut, request: window, meta: join(u64(33), key, form(t, 50_000), binary.AppendUvarint(nil, 10))}))
	edge := binary.LittleEndian.Uint64(l.take(peer.OpServe).Meta)
	before := append([]byte(nil), x.Bytes()...)
	require.NoError(t, l.tell(lie{op: peer.OpChunk, bulk: true, request: edge, payload: make([]byte, 50_001)}))
	l.requireExpelled("")
	require.Equal(t, before, x.Bytes(), "nothing was written")
	l.requireOthersWell()
}
