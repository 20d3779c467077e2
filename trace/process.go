package trace

// Process is what one node has recorded.
type Process struct {
	Name string // of its track: "worker 0"

	// Offset is added to this node's clock to place it on the axis that all share,
	// in ns. Nodes of one machine need none (see Now).
	Offset int64

	Entries []Entry // in any order
}
