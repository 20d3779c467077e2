package particle

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/tensor"
)

// seedFrames are frames of all kinds.
func seedFrames() []frame {
	forms := []form{{tensor.Float32, tensor.ShapeOf(2, 3)}, {tensor.Uint8, tensor.ShapeOf(0)}, {tensor.BFloat16, tensor.ShapeOf()}}
	return []frame{
		{op: opHello, life: 1, data: (&hello{devices: 3, pickled: true}).append(nil)},
		{op: opPlace, life: 1, number: 7, to: 2, chain: placeNumber(Place{2, 1, 3})},
		{op: opPlaced, life: 1, number: 7, to: 2},
		{op: opCall, life: 2, number: 9, to: 3, from: None, chain: 1 << 40, name: "step", path: []step{{0, 4}, {1, 9}}, forms: forms, data: []byte("args"), packed: make([]byte, 26)},
		{op: opCall, life: 2, number: 9, to: 3, from: 1, name: "step", path: []step{{1, 9}}, flags: flagApart | flagPickled, tag: tagSpace, bytes: 1 << 20, forms: forms},
		{op: opGet, life: 1, number: 3, to: 1, path: []step{{0, 3}}},
		{op: opReply, number: 3, flags: flagView, tag: 5, forms: forms, tokens: make([]peer.Token, 3), data: []byte("names")},
		frame{op: opReply, number: 4}.with(fail(codeHook, "Traceback\n  no")),
		{op: opFreed, number: 5},
		{op: opBye},
	}
}

func TestFramesSurviveTheirJourney(t *testing.T) {
	for _, f := range seedFrames() {
		got, err := readFrame(f.append(nil))
		require.NoError(t, err)
		require.Equal(t, f.append(nil), got.append(nil))
		require.Equal(t, f.name, got.name)
		require.Equal(t, f.path, got.path)
		require.Equal(t, f.forms, got.forms)
		require.True(t, bytes.Equal(f.data, got.data))
	}
}

func TestFramesThatAreCutOrWrongAreRefused(t *testing.T) {
	for _, f := range seedFrames() {
		b := f.append(nil)
		for n := range len(b) {
			if _, err := readFrame(b[:n]); err == nil {
				require.Empty(t, f.forms, "a frame of %d bytes instead of %d", n, len(b))
			}
		}
	}
	for what, change := range map[string]func(b []byte){
		"kind":  func(b []byte) { b[0] = byte(opEnd) },
		"flags": func(b []byte) { b[1] = 0x80 },
		"code":  func(b []byte) { b[2] = byte(codeEnd) },
		"name":  func(b []byte) { b[3] = 200 },
		"path":  func(b []byte) { b[57] = 255 },
		"forms": func(b []byte) { b[59] = 255 },
		"data":  func(b []byte) { b[63] = 255 },
		"bytes": func(b []byte) { b[47] = 255 },
	} {
		b := seedFrames()[3].append(nil)
		change(b)
		_, err := readFrame(b)
		var wrong *stepvan.ProtocolError
		require.ErrorAs(t, err, &wrong, what)
	}
}

// FuzzFrame holds a frame that is accepted to bounds that the rest relies on. It reads the same when encoded again.
func FuzzFrame(f *testing.F) {
	for _, x := range seedFrames() {
		f.Add(x.append(nil))
		x.flags |= flagSealed
		f.Add(append(x.append(nil), make([]byte, numberBytes+sealBytes)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readFrame(slices.Clone(b))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(x.name), maxName)
		require.LessOrEqual(t, len(x.path), maxDepth)
		require.LessOrEqual(t, len(x.forms), MaxTensors)
		require.GreaterOrEqual(t, x.bytes, int64(0))
		require.GreaterOrEqual(t, x.bytes+x.tensorBytes(), x.bytes)
		if x.flags&flagApart == 0 && x.flags&flagView == 0 {
			require.EqualValues(t, x.tensorBytes(), len(x.packed))
		}
		again, err := readFrame(append(append(x.append(nil), x.sealNumber()...), x.seal...))
		require.NoError(t, err)
		require.Equal(t, x.forms, again.forms)
		require.True(t, bytes.Equal(x.data, again.data))
		_, _ = readHello(x.data)
	})
}

// sealNumber is the number of a sealed frame as it travels.
func (f *frame) sealNumber() []byte {
	if f.sealed == nil {
		return nil
	}
	return f.sealed[len(f.sealed)-numberBytes:]
}
