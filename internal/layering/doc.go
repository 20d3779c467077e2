// Package layering holds the architecture: which package may import which, and
// which package alone may do what the others must not (call the kernel for
// memory, read the environment, use C).
//
// The rules are the tables in rooms.go and owners.go. The test of this package
// applies them to every package of the module as `go list -deps` and the
// sources tell, for all platforms and build tags; another test applies them to
// a small module that breaks each of them, and fails when one goes unnoticed.
//
// The rules are about what is shipped: tests may import any package, as long as
// Go can build them.
package layering
