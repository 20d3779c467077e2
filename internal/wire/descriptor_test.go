package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/tensor"
)

func descriptor() Descriptor {
	return Descriptor{
		Key: 0x0102030405060708, Bytes: 2 * 3 * 7168, Region: 0x1112131415161718, Offset: 0x2122232425262728,
		Generation: 0x31323334, DType: tensor.BFloat16, Flags: DescVariable, Shape: tensor.ShapeOf(3, 7168),
	}
}

func TestDescriptorGoldenBytes(t *testing.T) {
	d := descriptor()
	b := d.Append(nil)
	require.Len(t, b, d.Size())
	require.Equal(t, "0807060504030201"+"00a8000000000000"+"1817161514131211"+"2827262524232221"+
		"34333231"+"0b"+"02"+"0100"+"0300000000000000"+"001c000000000000", hex.EncodeToString(b))
}

func TestDescriptorRoundTrip(t *testing.T) {
	shapes := []tensor.Shape{
		{}, tensor.ShapeOf(0), tensor.ShapeOf(5, 0, 2), tensor.ShapeOf(1, 2, 3, 4, 5, 6, 7, 8),
	}
	for _, shape := range shapes {
		n, _ := shape.Bytes(tensor.Float32)
		d := Descriptor{Key: 1, Bytes: uint64(n), DType: tensor.Float32, Shape: shape}
		var got Descriptor
		rest, err := got.Decode(append(d.Append(nil), "rest"...), 0)
		require.NoError(t, err, shape)
		require.Equal(t, d, got)
		require.Equal(t, "rest", string(rest))
	}
}

func TestDescriptorTruncatedAtEveryOffset(t *testing.T) {
	d := descriptor()
	b := d.Append(nil)
	for n := range b {
		var got Descriptor
		_, err := got.Decode(b[:n], 128)
		var pe *stepvan.ProtocolError
		require.ErrorAs(t, err, &pe, "%d bytes", n)
		require.GreaterOrEqual(t, pe.Offset, 128)
	}
}

func TestDescriptorRefuses(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(b []byte)
		field string
	}{
		{"no dtype", func(b []byte) { b[36] = 0 }, "dtype"},
		{"unknown dtype", func(b []byte) { b[36] = 200 }, "dtype"},
		{"nine dimensions", func(b []byte) { b[37] = 9 }, "rank"},
		{"negative dimension", func(b []byte) { b[47] = 0x80 }, "shape"},
		{"shape beyond 63 bits", func(b []byte) { b[46], b[54] = 1, 1 }, "shape"},
		{"another size", func(b []byte) { b[8]++ }, "bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := descriptor()
			b := d.Append(nil)
			c.spoil(b)
			var got Descriptor
			_, err := got.Decode(b, 0)
			var pe *stepvan.ProtocolError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, c.field, pe.Field)
		})
	}
}

// Budget: 0 allocations.
func TestDescriptorAllocates(t *testing.T) {
	d, b := descriptor(), make([]byte, 0, MaxDescriptorSize)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var got Descriptor
		if _, err := got.Decode(d.Append(b), 0); err != nil {
			t.Fatal(err)
		}
	}))
}

func FuzzDescriptor(f *testing.F) {
	d := descriptor()
	f.Add(d.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Descriptor
		rest, err := d.Decode(b, 0)
		if err != nil {
			return
		}
		if again := d.Append(nil); string(again) != string(b[:len(b)-len(rest)]) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
