package bulk

// least is where REP MOVSB wins both ways. It copies what another core will read faster from 4 KiB on. It copies what
// another core has written faster only from here on.
const least = 32 << 10

// lineBytes is the alignment of the destination from which the processor moves whole cache lines.
const lineBytes = 64

// Copy copies src to dst, as many bytes as the shorter has, and returns how many. It does what copy does, overlaps
// included. Any goroutine. Another core that sees what is stored after the return sees the bytes.
// Budget: 0 allocations; 3 ns beside the copy.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < least || !fast || overlap(dst[:n], src[:n]) {
		return copy(dst, src)
	}
	done := copy(dst[:toLine(dst)], src)
	move(&dst[done], &src[done], uintptr(n-done))
	return n
}
