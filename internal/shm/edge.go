//go:build !race

package shm

// Edge is an order between those who publish and those who consume, for the race detector. It costs nothing without it.
type Edge struct{}

// EdgeOf returns the edge of a file: the same one for everybody in the process.
func EdgeOf(uint64) Edge { return Edge{} }

// Publish comes before the Store that publishes.
func (Edge) Publish() {}

// Consume comes behind the Load that has found something.
func (Edge) Consume() {}
