package tensor

// Key names a tensor between a worker and its servers. It is opaque: stepvan
// compares and hashes it, and never reads bits in it.
type Key uint64
