//go:build !race

package shm

// Edge is an order between the goroutines that publish and those that consume, for the race detector. Without the
// detector it costs nothing.
type Edge struct{}

func edgeOf(int) Edge { return Edge{} }

// Publish comes before the Store that publishes.
func (Edge) Publish() {}

// Consume comes behind the Load that has found something.
func (Edge) Consume() {}
