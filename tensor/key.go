package tensor

// Key names a tensor between a worker and its servers. The program chooses it freely: stepvan only compares and hashes
// keys.
type Key uint64
