package trace

// Process is what one node has recorded.
type Process struct {
	Name string // the name of its track: "worker 0"

	// Offset is what WriteJSON adds to the stamps of this node, in ns, to place them on the common time axis. Nodes of
	// one machine need no offset.
	Offset int64

	Entries []Entry // in any order
}
