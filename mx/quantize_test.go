package mx

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/race"
	"github.com/stepvan/stepvan/tensor"
)

func floats(t testing.TB, rows, columns int64, data []float32) tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(data, rows, columns)
	require.NoError(t, err)
	return x
}

func raw(t testing.TB, d tensor.DType, dims ...int64) tensor.Tensor {
	t.Helper()
	shape := tensor.ShapeOf(dims...)
	n, _ := shape.Bytes(d)
	x, err := tensor.FromBytes(d, shape, make([]byte, n))
	require.NoError(t, err)
	return x
}

// The largest value of a block decides its scale. These are the vectors of the format.
func TestScales(t *testing.T) {
	inf, nanValue := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		largest     float32
		scale, code byte
	}{
		{1, 119, 0x78}, {1.75, 119, 0x7e}, {1.7578125, 120, 0x76}, {448, 127, 0x7e}, {450, 128, 0x76},
		{0x1p-126, 1, 0}, {0, 0, 0}, {0x1p-149, 0, 0}, {math.MaxFloat32, 247, 0x78},
		{inf, 255, 0x7f}, {nanValue, 255, 0x7f},
	} {
		for _, sign := range []float32{1, -1} {
			block := [Block]float32{5: c.largest * sign, 9: c.largest / 1000}
			var codes [Block]byte
			require.Equal(t, c.scale, quantize(&codes, &block), "%g", c.largest)
			if c.largest >= 1 || c.largest == 0 || c.scale == nan {
				require.Equal(t, c.code, codes[5]&0x7f, "%g", c.largest)
			}
			if c.scale != nan && c.code != 0 {
				require.Equal(t, sign < 0, codes[5]&0x80 != 0)
			}
			require.Zero(t, codes[0])
		}
	}
}

// Each float of 16 bits, times powers of two, against a search for the nearest code.
func TestElementsAreRoundedToTheNearest(t *testing.T) {
	nearest := func(x float64) (code byte) {
		best := math.Inf(1)
		for c := range byte(0x7f) {
			d := math.Abs(elementValues[c] - x)
			if d < best || d == best && c&1 == 0 {
				best, code = d, c
			}
		}
		return code
	}
	tested := 0
	for bits := uint32(0); bits < infinity>>16; bits++ {
		x := math.Float32frombits(bits << 16)
		if x > Largest || x < 0x1p-14 && bits%64 != 0 {
			continue
		}
		want := nearest(float64(x))
		require.Equal(t, want, encode(x), "%g", x)
		require.Equal(t, want|0x80, encode(-x), "%g", -x)
		tested++
	}
	require.Greater(t, tested, 2000)
	for c := range byte(0x7f) {
		require.Equal(t, c, encode(float32(elementValues[c])))
		if c > 0 { // halfway between two codes, and just beside it
			low, high := elementValues[c-1], elementValues[c]
			for _, x := range []float64{(low + high) / 2, math.Nextafter((low+high)/2, 0), (low+high)/2 + (high-low)/1e4} {
				require.Equal(t, nearest(float64(float32(x))), encode(float32(x)), "%g", x)
			}
		}
	}
}

// A matrix comes back within the error that the format allows, with either layout of scales and either type.
func TestQuantizeAndBack(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows, columns := 1+r.Int64N(300), Block*(1+r.Int64N(9))
		data := make([]float32, rows*columns)
		for i := range data {
			data[i] = float32(r.NormFloat64() * math.Exp(6*r.NormFloat64()))
			if seed%2 == 0 {
				data[i] = math.Float32frombits(math.Float32bits(data[i]) &^ 0xffff) // a bfloat16
			}
		}
		from := floats(t, rows, columns, data)
		codes, again := raw(t, tensor.Float8E4M3FN, rows, columns), raw(t, tensor.Float8E4M3FN, rows, columns)
		scales := raw(t, tensor.Float8E8M0FNU, rows, columns/Block)
		list := raw(t, tensor.Float8E8M0FNU, SwizzledBytes(rows, columns))
		for i := range list.Bytes() {
			list.Bytes()[i] = 99
		}
		require.NoError(t, Quantize(&codes, &scales, &from))
		require.NoError(t, Quantize(&again, &list, &from))
		require.Equal(t, codes.Bytes(), again.Bytes())
		checkSwizzled(t, rows, columns/Block, scales.Bytes(), list.Bytes())

		to, other := floats(t, rows, columns, make([]float32, len(data))), floats(t, rows, columns, make([]float32, len(data)))
		require.NoError(t, Dequantize(&to, &codes, &scales))
		require.NoError(t, Dequantize(&other, &codes, &list))
		require.Equal(t, to.Bytes(), other.Bytes())
		got, err := tensor.As[float32](to)
		require.NoError(t, err)
		for i, x := range data {
			scale := scaleValue(scales.Bytes()[int64(i)/Block])
			bound := max(math.Abs(float64(x))/16, 0x1p-10*scale)
			require.LessOrEqual(t, math.Abs(float64(got[i])-float64(x)), bound, "%g", x)
		}
		if seed%2 == 0 {
			checkBFloat16(t, rows, columns, data, codes, scales, got)
		}
	}
}

// checkSwizzled compares the list of scales with their matrix: as torchao lays tiles out, in steps.
func checkSwizzled(t *testing.T, rows, blocks int64, matrix, list []byte) {
	t.Helper()
	used := 0
	for i, code := range list {
		at := int64(i)
		column := at % 4
		group := at / 4 % 4
		row := at / 16 % 32
		tile := at / 512
		across := (blocks + 3) / 4
		row, column = tile/across*128+group*32+row, tile%across*4+column
		if row >= rows || column >= blocks {
			require.Zero(t, code, "a scale of nothing")
			continue
		}
		require.Equal(t, matrix[row*blocks+column], code)
		used++
	}
	require.EqualValues(t, rows*blocks, used)
}

func checkBFloat16(t *testing.T, rows, columns int64, data []float32, codes, scales tensor.Tensor, want []float32) {
	t.Helper()
	from, to := raw(t, tensor.BFloat16, rows, columns), raw(t, tensor.BFloat16, rows, columns)
	halves, err := tensor.As[uint16](from)
	require.NoError(t, err)
	for i, x := range data {
		halves[i] = uint16(math.Float32bits(x) >> 16)
	}
	again, list := raw(t, tensor.Float8E4M3FN, rows, columns), raw(t, tensor.Float8E8M0FNU, rows, columns/Block)
	require.NoError(t, Quantize(&again, &list, &from))
	require.Equal(t, codes.Bytes(), again.Bytes())
	require.Equal(t, scales.Bytes(), list.Bytes())
	require.NoError(t, Dequantize(&to, &codes, &scales))
	halves, err = tensor.As[uint16](to)
	require.NoError(t, err)
	for i, x := range want {
		if math.Abs(float64(x)) >= 0x1p-120 { // an element has 4 bits of fraction, so it is a bfloat16
			require.Equal(t, uint16(math.Float32bits(x)>>16), halves[i])
		}
	}
}

func TestRefusals(t *testing.T) {
	from := floats(t, 4, 64, make([]float32, 256))
	codes, scales := raw(t, tensor.Float8E4M3FN, 4, 64), raw(t, tensor.Float8E8M0FNU, 4, 2)
	narrow, flat, halves := floats(t, 4, 48, make([]float32, 192)), floats(t, 256, 1, make([]float32, 256)), raw(t, tensor.Float16, 4, 64)
	line, err := flat.View(tensor.ShapeOf(256))
	require.NoError(t, err)
	bytes, turned := raw(t, tensor.Uint8, 4, 64), raw(t, tensor.Float8E8M0FNU, 2, 4)
	for want, c := range map[string][3]tensor.Tensor{
		"is not a matrix":                    {codes, scales, line},
		"has 48 columns (want a multiple of": {codes, scales, narrow},
		"give float32 or bfloat16":           {codes, scales, halves},
		"the elements are uint8[4 64]":       {bytes, scales, from},
		"the scales are uint8[4 64]":         {codes, bytes, from},
		"want the shape [4 2], or [512]":     {codes, turned, from},
		"the zero Tensor holds nothing":      {codes, {}, from},
	} {
		for _, err := range []error{Quantize(&c[0], &c[1], &c[2]), Dequantize(&c[2], &c[0], &c[1])} {
			require.ErrorIs(t, err, stepvan.ErrInvalid)
			require.ErrorContains(t, err, want)
		}
	}
}

// A matrix of many pieces of blocks goes the same way as its rows do one by one.
func TestLargeMatrix(t *testing.T) {
	const rows, columns = 130, 3 * most / 8 * Block
	r := rand.New(rand.NewPCG(1, 7))
	data := make([]float32, rows*columns)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	from := floats(t, rows, columns, data)
	codes, scales := raw(t, tensor.Float8E4M3FN, rows, columns), raw(t, tensor.Float8E8M0FNU, rows, columns/Block)
	list := raw(t, tensor.Float8E8M0FNU, SwizzledBytes(rows, columns))
	require.NoError(t, Quantize(&codes, &scales, &from))
	want := append([]byte(nil), codes.Bytes()...)
	require.NoError(t, Quantize(&codes, &list, &from))
	require.Equal(t, want, codes.Bytes())
	checkSwizzled(t, rows, columns/Block, scales.Bytes(), list.Bytes())
	for row := range rows {
		var block [Block]float32
		copy(block[:], data[row*columns+columns-Block:])
		var last [Block]byte
		require.Equal(t, quantize(&last, &block), scales.Bytes()[(row+1)*columns/Block-1])
		require.Equal(t, last[:], want[(row+1)*columns-Block:(row+1)*columns])
	}
	to, other := floats(t, rows, columns, make([]float32, len(data))), floats(t, rows, columns, make([]float32, len(data)))
	require.NoError(t, Dequantize(&to, &codes, &scales))
	require.NoError(t, Dequantize(&other, &codes, &list))
	require.Equal(t, to.Bytes(), other.Bytes())
}

func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	from, codes := raw(t, tensor.BFloat16, 256, 512), raw(t, tensor.Float8E4M3FN, 256, 512)
	for _, scales := range []tensor.Tensor{raw(t, tensor.Float8E8M0FNU, 256, 16), raw(t, tensor.Float8E8M0FNU, SwizzledBytes(256, 512))} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			require.NoError(t, Quantize(&codes, &scales, &from))
			require.NoError(t, Dequantize(&from, &codes, &scales))
		}))
	}
}
