//go:build amd64 && !race

package mx

import (
	"unsafe"

	"golang.org/x/sys/cpu"
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
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL
}

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }

func (l *loops) takeAVX512() {
	l.quantize = [kinds]loop{quantizeFloat32AVX512, quantizeBFloat16AVX512}
	l.dequantize = [kinds]loop{dequantizeFloat32AVX512, dequantizeBFloat16AVX512}
}

func (l *loops) takeAVX2() {
	l.quantize = [kinds]loop{quantizeFloat32AVX2, quantizeBFloat16AVX2}
	l.dequantize = [kinds]loop{dequantizeFloat32AVX2, dequantizeBFloat16AVX2}
}

//go:noescape
func quantizeFloat32AVX512(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func quantizeBFloat16AVX512(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func dequantizeFloat32AVX512(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func dequantizeBFloat16AVX512(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func quantizeFloat32AVX2(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func quantizeBFloat16AVX2(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func dequantizeFloat32AVX2(values, codes, scales unsafe.Pointer, n int)

//go:noescape
func dequantizeBFloat16AVX2(values, codes, scales unsafe.Pointer, n int)
