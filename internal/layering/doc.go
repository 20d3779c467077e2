// Package layering holds the rules of the architecture. They say which package
// may import which. They also say which package alone may call the kernel for
// memory, read the environment, or use C.
//
// The rules are the tables in rows.go and owners.go. The test of this package
// applies them to every package of the module, for all platforms and build tags.
// It reads the packages with `go list -deps`, and their sources. Another test
// applies the rules to a small module that breaks each of them. It fails when
// the check misses one.
//
// The rules are about what is shipped: tests may import any package, as long as
// Go can build them.
package layering
