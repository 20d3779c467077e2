// Package mutant breaks vans on purpose, one way at a time, to prove that
// vantest notices. Its test runs the suite against every mutation and fails
// when one survives, or is blamed on the wrong clause.
//
// A mutant wraps a working van. It has no threads, and its methods
// may be called as those of the van inside; it owns no memory but what a
// mutation holds back.
package mutant
