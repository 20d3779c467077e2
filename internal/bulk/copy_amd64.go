//go:build amd64 && !race

package bulk

import "unsafe"

const assembly = true

// fast is whether the processor has fast short REP MOVSB. Those that have only the enhanced one (ERMS) are slow at some
// sizes and alignments.
var fast = hasFSRM()

// hasFSRM reads leaf 7 of CPUID, bit 4 of EDX.
func hasFSRM() bool {
	const extended, fsrm = 7, 1 << 4
	if most, _ := cpuid(0); most < extended {
		return false
	}
	_, edx := cpuid(extended)
	return edx&fsrm != 0
}

func cpuid(leaf uint32) (eax, edx uint32)

// move copies n bytes, from the lowest on. Its stores may become visible in any order, as it is a string operation. The
// stores that follow become visible after all of them.
//
//go:noescape
func move(dst, src *byte, n uintptr)

// movePast copies n bytes, a multiple of lineBytes, past the caches. dst is aligned to a cache line. The stores that
// follow become visible after all of it.
//
//go:noescape
func movePast(dst, src *byte, n uintptr)

// toLine is how many bytes of b are before a cache line begins.
func toLine(b []byte) int { return int(-uintptr(unsafe.Pointer(&b[0])) & (lineBytes - 1)) }

// overlap reports whether two slices of the same length have a byte in common.
func overlap(a, b []byte) bool {
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x-y < uintptr(len(b)) || y-x < uintptr(len(a))
}
