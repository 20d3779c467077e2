package race

// Fewer returns how often a test repeats what has no goroutines: n times. Under the race detector, which has nothing to
// find there, it is a tenth.
func Fewer[T ~int | ~int64 | ~uint64](n T) T {
	if Enabled {
		return max(1, n/10)
	}
	return n
}
