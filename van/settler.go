package van

// Settler is implemented by accepted endpoints of vans that bound how many peers may be connected that nobody knows: when
// there are too many, such a van gives up those that came first, and then accepts no further ones for a while.
type Settler interface {
	// Settle says that the peer is known: its connection makes room for nobody. By the caller of Poll.
	Settle()
}
