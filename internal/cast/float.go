package cast

import "math"

const (
	sign32     = 1 << 31
	infinity32 = 0x7f80_0000 // of float32
)

// bfloat16Of rounds to the nearest bfloat16.
func bfloat16Of(x float32) uint16 {
	u := math.Float32bits(x)
	if u&^sign32 > infinity32 {
		return uint16(u>>16) | 0x40 // a quiet NaN
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func ofBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// float16Of rounds to the nearest float16.
func float16Of(x float32) uint16 {
	u := math.Float32bits(x)
	sign := uint16(u>>16) & 0x8000
	u &^= sign32
	switch {
	case u > infinity32:
		return sign | 0x7e00 | uint16(u>>13&0x3ff)
	case u >= (127+16)<<23: // 2^16; the largest float16 is 65504, and what rounds above it carries into the infinity
		return sign | 0x7c00
	case u < (127-14)<<23:
		// The sum rounds to multiples of the least float16, and has their number in its lowest bits.
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5))
	}
	return sign | uint16((u-(127-15)<<23+0xfff+u>>13&1)>>13)
}

func ofFloat16(h uint16) float32 {
	sign, u := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case u >= 0x7c00:
		u = infinity32 | u&0x3ff<<13
		if u > infinity32 {
			u |= 1 << 22 // a quiet NaN
		}
	case u < 0x400:
		u = math.Float32bits(float32(u) * 0x1p-24)
	default:
		u = u<<13 + (127-15)<<23
	}
	return math.Float32frombits(sign | u)
}

// e4m3fnOf rounds to the nearest float8_e4m3fn. What would be 480 or more is a NaN.
func e4m3fnOf(x float32) byte {
	u := math.Float32bits(x)
	sign := byte(u>>24) & 0x80
	u &^= sign32
	switch {
	case u >= 0x43f0_0000: // 480
		return sign | 0x7f
	case u < (127-6)<<23:
		return sign | byte(math.Float32bits(math.Float32frombits(u)+1<<14))
	}
	return sign | byte((u-(127-7)<<23+0x7_ffff+u>>20&1)>>20)
}

// e5m2Of rounds to the nearest float8_e5m2.
func e5m2Of(x float32) byte {
	u := math.Float32bits(x)
	sign := byte(u>>24) & 0x80
	u &^= sign32
	switch {
	case u > infinity32:
		return sign | 0x7f
	case u >= (127+16)<<23:
		return sign | 0x7c
	case u < (127-14)<<23:
		return sign | byte(math.Float32bits(math.Float32frombits(u)+1<<7))
	}
	return sign | byte((u-(127-15)<<23+0xf_ffff+u>>21&1)>>21)
}

// e4m3fnValues and e5m2Values are the values of all codes.
var e4m3fnValues, e5m2Values = func() (a, b [256]float32) {
	for i := range a {
		exponent, fraction := i>>3&15, float64(i&7)/8
		x := math.Ldexp(1+fraction, exponent-7)
		switch {
		case i&0x7f == 0x7f:
			x = math.NaN()
		case exponent == 0:
			x = math.Ldexp(fraction, -6)
		}
		u := math.Float32bits(float32(x)) | uint32(i&0x80)<<24
		a[i], b[i] = math.Float32frombits(u), ofFloat16(uint16(i)<<8)
	}
	return a, b
}()
