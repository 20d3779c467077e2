package reuse

// Slice empties s for its next use and lets go of what it refers to. For the one element that most have it is some
// instructions in place of a call into the runtime, which is fifty; an exchange empties a dozen.
func Slice[T any](s []T) []T {
	if len(s) == 1 {
		var zero T
		s[0] = zero
	} else {
		clear(s)
	}
	return s[:0]
}
