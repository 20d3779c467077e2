// Package bulk copies memory that another core has just written, or will read next: payload in shared memory.
//
// Go's copy writes past the caches from 1 MiB on, so the reader finds nothing in them. Below 1 MiB it waits for
// each cache line that the reader still has. Processors with fast short REP MOVSB (amd64 since about 2020) do neither,
// because they know how much is written. On other processors Copy is the copy of Go.
//
// What the caches cannot hold goes past them in any case, also where it comes in small parts.
package bulk
