//go:build amd64 || arm64

package prefetch

import "unsafe"

// Write begins to fetch the cache lines of the n bytes at p, which will be written soon. It waits for nothing, and p may
// be any address. Budget: 2 ns, and a fraction for each line.
//
//go:noescape
func Write(p unsafe.Pointer, n uintptr)
