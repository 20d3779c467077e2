// Package prefetch has memory fetched into the cache before it is written. It is for rings and free lists that are
// larger than the caches. Without it the next atomic operation behind the write waits until the memory is there, which
// takes some 50 ns.
//
// The assembly is in a package of its own because its users have nothing else in common.
package prefetch
