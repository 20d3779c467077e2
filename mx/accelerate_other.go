//go:build !amd64 || race

package mx

// accelerate has no loops for this processor, or the race detector is on.
func (l *loops) accelerate() {}
