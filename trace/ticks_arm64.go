package trace

// ticks reads the virtual counter.
//
//go:noescape
func ticks() int64

// steadyTicks: the architecture promises it.
func steadyTicks() bool { return true }
