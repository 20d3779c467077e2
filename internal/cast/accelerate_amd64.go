//go:build amd64 && !race

package cast

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/stepvan/stepvan/tensor"
)

// accelerate takes the loops in assembly that this processor has.
func (l *loops) accelerate() {
	switch {
	case hasAVX512():
		l.takeAVX512()
	case hasAVX2():
		l.takeAVX2()
	}
}

func hasAVX512() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasBMI2
}

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }

func (l *loops) takeAVX512() {
	l.decode[tensor.BFloat16], l.encode[tensor.BFloat16] = decodeBFloat16AVX512, encodeBFloat16AVX512
	l.decode[tensor.Float16], l.encode[tensor.Float16] = decodeFloat16AVX512, encodeFloat16AVX512
	l.merge[tensor.Float32] = [mergeEnd]loop{Sum: sumAVX512, Product: productAVX512, Max: maximumAVX512, Min: minimumAVX512}
	l.merge[tensor.BFloat16][Sum] = sumBFloat16AVX512
	l.pastDecode[tensor.BFloat16], l.pastEncode[tensor.BFloat16] = pastDecodeBFloat16AVX512, pastEncodeBFloat16AVX512
	l.pastDecode[tensor.Float16], l.pastEncode[tensor.Float16] = pastDecodeFloat16AVX512, pastEncodeFloat16AVX512
}

func (l *loops) takeAVX2() {
	for _, x := range []struct {
		l        *loop
		assembly loop
		to, from int // bytes of an element
	}{
		{&l.decode[tensor.BFloat16], decodeBFloat16AVX2, 4, 2},
		{&l.encode[tensor.BFloat16], encodeBFloat16AVX2, 2, 4},
		{&l.decode[tensor.Float16], decodeFloat16AVX2, 4, 2},
		{&l.encode[tensor.Float16], encodeFloat16AVX2, 2, 4},
		{&l.merge[tensor.Float32][Sum], sumAVX2, 4, 4},
		{&l.merge[tensor.Float32][Product], productAVX2, 4, 4},
		{&l.merge[tensor.Float32][Max], maximumAVX2, 4, 4},
		{&l.merge[tensor.Float32][Min], minimumAVX2, 4, 4},
		{&l.merge[tensor.BFloat16][Sum], sumBFloat16AVX2, 2, 2},
	} {
		*x.l = withTail(x.assembly, *x.l, x.to, x.from)
	}
	l.pastDecode[tensor.BFloat16], l.pastEncode[tensor.BFloat16] = pastDecodeBFloat16AVX2, pastEncodeBFloat16AVX2
	l.pastDecode[tensor.Float16], l.pastEncode[tensor.Float16] = pastDecodeFloat16AVX2, pastEncodeFloat16AVX2
}

// withTail returns a loop for any number of elements of so many bytes. tail works on those after the last 16.
func withTail(l, tail loop, to, from int) loop {
	return func(a, b unsafe.Pointer, n int) {
		whole := n &^ 15
		l(a, b, whole)
		if n > whole {
			tail(unsafe.Add(a, whole*to), unsafe.Add(b, whole*from), n-whole)
		}
	}
}

//go:noescape
func decodeBFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func encodeBFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func decodeFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func encodeFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func sumAVX512(to, from unsafe.Pointer, n int)

//go:noescape
func productAVX512(to, from unsafe.Pointer, n int)

//go:noescape
func maximumAVX512(to, from unsafe.Pointer, n int)

//go:noescape
func minimumAVX512(to, from unsafe.Pointer, n int)

//go:noescape
func sumBFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func decodeBFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func encodeBFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func decodeFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func encodeFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func sumAVX2(to, from unsafe.Pointer, n int)

//go:noescape
func productAVX2(to, from unsafe.Pointer, n int)

//go:noescape
func maximumAVX2(to, from unsafe.Pointer, n int)

//go:noescape
func minimumAVX2(to, from unsafe.Pointer, n int)

//go:noescape
func sumBFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func pastDecodeBFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func pastEncodeBFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func pastDecodeFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func pastEncodeFloat16AVX512(to, from unsafe.Pointer, n int)

//go:noescape
func pastDecodeBFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func pastEncodeBFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func pastDecodeFloat16AVX2(to, from unsafe.Pointer, n int)

//go:noescape
func pastEncodeFloat16AVX2(to, from unsafe.Pointer, n int)
