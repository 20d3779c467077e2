package cast

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// nearest is the code of a table that is next to x, by a search. There are no negative values in the table, and it
// ends with the largest. overflow is the code of what rounds to more.
func nearest(table []float64, overflow int, x float64) int {
	last := len(table) - 1
	// What is as far beyond the largest value as half a step rounds to the even one of the two.
	if edge := table[last] + (table[last]-table[last-1])/2; x > edge || x == edge && last&1 == 1 {
		return overflow
	}
	lo, hi := 0, last
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; table[mid] <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	below, above := x-table[lo], table[hi]-x
	if above < below || above == below && lo&1 == 1 {
		return hi
	}
	return lo
}

// small are the types of 16 and 8 bits.
var small = []struct {
	name     string
	sign     int // bit
	end      int // the code after the largest number
	overflow int // its code
	value    func(code int) float32
	encode   func(x float32) int
}{
	{"bfloat16", 15, 0x7f80, 0x7f80, func(c int) float32 { return ofBFloat16(uint16(c)) }, func(x float32) int { return int(bfloat16Of(x)) }},
	{"float16", 15, 0x7c00, 0x7c00, func(c int) float32 { return ofFloat16(uint16(c)) }, func(x float32) int { return int(float16Of(x)) }},
	{"float8_e4m3fn", 7, 0x7f, 0x7f, func(c int) float32 { return e4m3fnValues[c] }, func(x float32) int { return int(e4m3fnOf(x)) }},
	{"float8_e5m2", 7, 0x7c, 0x7c, func(c int) float32 { return e5m2Values[c] }, func(x float32) int { return int(e5m2Of(x)) }},
}

// Each number of a small type comes back as it was, and rounds to its neighbour from half the way on.
func TestNumbersRoundToTheNearest(t *testing.T) {
	for _, s := range small {
		table := make([]float64, s.end)
		for c := range table {
			table[c] = float64(s.value(c))
			if x := float32(table[c]); s.encode(x) != c || s.encode(-x) != c|1<<s.sign {
				t.Fatalf("%s %#x: it became %#x and %#x", s.name, c, s.encode(x), s.encode(-x))
			}
		}
		check := func(x float32) {
			if x > 0 && !math.IsInf(float64(x), 0) {
				want := nearest(table, s.overflow, float64(x))
				if s.encode(x) != want || s.encode(-x) != want|1<<s.sign {
					t.Fatalf("%s of %g: got %#x and %#x, want %#x", s.name, x, s.encode(x), s.encode(-x), want)
				}
			}
		}
		for c := range table[:len(table)-1] {
			half := float32((table[c] + table[c+1]) / 2)
			check(half)
			check(math.Nextafter32(half, 0))
			check(math.Nextafter32(half, math.MaxFloat32))
		}
		largest := float32(table[s.end-1])
		for _, x := range []float32{1.001, 1.01, 1.03, 1.04, 1.06, 1.07, 1.1, 1.2, 2, 1e6} {
			check(largest * x)
		}
		check(math.MaxFloat32)
		check(0x1p-149)
	}
}

func TestWhatIsNoNumber(t *testing.T) {
	for _, s := range small {
		for _, bits := range []uint32{infinity32 + 1, 0x7fc0_0000, 0x7fff_ffff} {
			for sign := range uint32(2) {
				code := s.encode(math.Float32frombits(bits | sign<<31))
				require.EqualValues(t, sign, code>>s.sign, s.name)
				require.True(t, math.IsNaN(float64(s.value(code))), s.name)
			}
		}
		require.Equal(t, s.overflow, s.encode(float32(math.Inf(1))), s.name)
		require.Equal(t, s.overflow|1<<s.sign, s.encode(float32(math.Inf(-1))), s.name)
		require.Equal(t, 1<<s.sign, s.encode(float32(math.Copysign(0, -1))), s.name)
		for c := s.end + 1; c < 1<<s.sign; c++ {
			x := s.value(c)
			require.True(t, math.IsNaN(float64(x)), "%s %x", s.name, c)
			require.False(t, math.Signbit(float64(x)))
			require.True(t, math.Signbit(float64(s.value(c|1<<s.sign))))
		}
	}
}
