package postoffice

import "math/rand/v2"

// newIncarnation names one life of a node: random, and never 0, which means "not known".
func newIncarnation() uint32 { return rand.Uint32N(1<<32-1) + 1 }
