package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

// sample has a different value in every field.
func sample() Header {
	return Header{
		Kind: KindData, Op: 0x12, Flags: FlagTrace | FlagAckNow, Channel: 0x3456,
		Source: 0x01020304, Destination: 0x05060708, Incarnation: 0x090A0B0C,
		Epoch: 0x1112131415161718, Sequence: 0x2122232425262728, Ack: 0x3132333435363738,
		Credit: 0x4142434445464748, Request: 0x5152535455565758, Generation: 0x61626364,
		Pushes: 7, Pulls: 9, Payload: 0x1000, Total: 0x3000, Offset: 0x2000,
	}
}

const goldenMeta = "three descriptors, say"

// golden is the header of sample with goldenMeta, as it must stay for this Version.
var golden = strings.ReplaceAll(`
53 56 41 4e 02 00 04 12 03 00 56 34 04 03 02 01
08 07 06 05 0c 0b 0a 09 18 17 16 15 14 13 12 11
28 27 26 25 24 23 22 21 38 37 36 35 34 33 32 31
48 47 46 45 44 43 42 41 58 57 56 55 54 53 52 51
64 63 62 61 07 00 00 00 09 00 00 00 16 00 00 00
00 10 00 00 00 00 00 00 00 30 00 00 00 00 00 00
00 20 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 `, " ", "") // and the checksum

func encoded(t *testing.T) []byte {
	t.Helper()
	h, b := sample(), make([]byte, HeaderSize)
	h.Encode(b, []byte(goldenMeta))
	return b
}

// What a van reads of a header that was encoded.
func TestTotalAndRest(t *testing.T) {
	h := Header{Kind: KindData, Payload: 100, Total: 1000, Offset: 300, Ack: 7, Credit: 8}
	b := make([]byte, HeaderSize)
	h.Encode(b, nil)
	require.EqualValues(t, 1000, TotalOf(b))
	require.EqualValues(t, 600, RestOf(b))
	ack, credit := ReportsOf(b)
	require.EqualValues(t, 7, ack)
	require.EqualValues(t, 8, credit)
}

func TestHeaderGoldenBytes(t *testing.T) {
	b := encoded(t)
	require.Equal(t, strings.ReplaceAll(golden, "\n", ""), hex.EncodeToString(b[:offChecksum]))
	require.Equal(t, uint64(0x2633820e56445266), binary.LittleEndian.Uint64(b[offChecksum:]))
}

func TestHeaderRoundTrip(t *testing.T) {
	b := encoded(t)
	var got Header
	require.NoError(t, got.Decode(b, DefaultLimits))
	want := sample()
	want.Meta = uint32(len(goldenMeta))
	require.Equal(t, want, got)
	require.NoError(t, Verify(b, []byte(goldenMeta)))
}

func TestHeaderTruncatedAtEveryOffset(t *testing.T) {
	b := encoded(t)
	for n := range HeaderSize {
		var h Header
		var pe *stepvan.ProtocolError
		require.ErrorAs(t, h.Decode(b[:n], DefaultLimits), &pe, "%d bytes", n)
	}
}

func TestHeaderAnyFlippedBitIsNoticed(t *testing.T) {
	meta := []byte(goldenMeta)
	for i := range HeaderSize * 8 {
		b := encoded(t)
		b[i/8] ^= 1 << (i % 8)
		var h Header
		err := h.Decode(b, Limits{Meta: 1 << 31, Message: 1 << 63, Tensors: 1 << 31})
		if err == nil {
			err = Verify(b, meta)
		}
		require.Error(t, err, "bit %d", i)
	}
	for i := range len(meta) * 8 {
		broken := []byte(goldenMeta)
		broken[i/8] ^= 1 << (i % 8)
		require.Error(t, Verify(encoded(t), broken), "meta bit %d", i)
	}
}

func TestHeaderLimits(t *testing.T) {
	lim := Limits{Meta: 100, Message: 1000, Tensors: 10}
	good := Header{Kind: KindData, Pushes: 10, Pulls: 10, Payload: 500, Total: 1000, Offset: 500}
	cases := []struct {
		name  string
		spoil func(h *Header)
		meta  int
		field string
	}{
		{"whole", func(*Header) {}, 100, ""},
		{"no kind", func(h *Header) { h.Kind = 0 }, 0, "kind"},
		{"unknown kind", func(h *Header) { h.Kind = kindEnd }, 0, "kind"},
		{"meta", func(*Header) {}, 101, "meta"},
		{"pushes", func(h *Header) { h.Pushes = 11 }, 0, "pushes"},
		{"pulls", func(h *Header) { h.Pulls = 1 << 31 }, 0, "pulls"},
		{"total", func(h *Header) { h.Total = 1001 }, 0, "total"},
		{"giant", func(h *Header) { h.Total = 1<<64 - 1 }, 0, "total"},
		{"payload", func(h *Header) { h.Payload = 1001 }, 0, "payload"},
		{"offset", func(h *Header) { h.Offset = 501 }, 0, "offset"},
		{"offset wraps", func(h *Header) { h.Offset = 1<<64 - 1 }, 0, "offset"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := good
			c.spoil(&h)
			b := make([]byte, HeaderSize)
			h.Encode(b, make([]byte, c.meta))
			var got Header
			err := got.Decode(b, lim)
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, c.field, pe.Field)
		})
	}
}

func TestHeaderOfAnotherVersion(t *testing.T) {
	b := encoded(t)
	for _, other := range []uint16{0, Version - 1, Version + 1, 0xFFFF} {
		binary.LittleEndian.PutUint16(b[offVersion:], other)
		var h Header
		var ve *VersionError
		require.ErrorAs(t, h.Decode(b, DefaultLimits), &ve)
		require.Equal(t, VersionError{Peer: other, Own: Version}, *ve)
		require.Contains(t, ve.Error(), "same stepvan version")
	}
}

func TestHeaderOfNoPeer(t *testing.T) {
	var h Header
	err := h.Decode([]byte("GET / HTTP/1.1\r\nHost: x\r\n"+strings.Repeat(" ", HeaderSize)), DefaultLimits)
	var pe *stepvan.ProtocolError
	require.True(t, errors.As(err, &pe))
	require.Equal(t, "magic", pe.Field)
}

// Budget: 0 allocations to encode, decode and verify.
func TestHeaderAllocates(t *testing.T) {
	b, meta := make([]byte, HeaderSize), []byte(goldenMeta)
	h := sample()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.Encode(b, meta)
		var got Header
		if got.Decode(b, DefaultLimits) != nil || Verify(b, meta) != nil {
			t.Fatal("broken")
		}
	}))
}

func FuzzHeader(f *testing.F) {
	h, b := sample(), make([]byte, HeaderSize)
	h.Encode(b, nil)
	f.Add(b)
	f.Add(b[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		if h.Decode(b, DefaultLimits) != nil {
			return
		}
		if h.Meta > DefaultLimits.Meta || h.Total > DefaultLimits.Message || h.Offset+h.Payload > h.Total {
			t.Fatalf("accepted %+v", h)
		}
		meta := make([]byte, h.Meta)
		again := make([]byte, HeaderSize)
		h.Encode(again, meta)
		var back Header
		if err := back.Decode(again, DefaultLimits); err != nil || back != h {
			t.Fatalf("%+v became %+v: %v", h, back, err)
		}
		if err := Verify(again, meta); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUnsummedHeadersDifferInTheSumOnly(t *testing.T) {
	h := Header{Kind: KindData, Sequence: 7, Request: 9, Payload: 3, Total: 3}
	meta := []byte("meta")
	summed, unsummed := make([]byte, HeaderSize), bytes.Repeat([]byte{0xff}, HeaderSize)
	h.Encode(summed, meta)
	h.EncodeUnsummed(unsummed, len(meta))
	require.Equal(t, summed[:offChecksum], unsummed[:offChecksum])
	require.Zero(t, unsummed[offChecksum:][0])
	require.Error(t, Verify(unsummed, meta))
	require.NoError(t, new(Header).Decode(unsummed, DefaultLimits))
}
