//go:build amd64 || arm64

package prefetch

import "unsafe"

// Write begins to fetch the cache lines of the n bytes at p, which the caller will write soon. It waits for nothing. p
// may be any address. Budget: 2 ns, and a fraction for each line.
//
//go:noescape
func Write(p unsafe.Pointer, n uintptr)
