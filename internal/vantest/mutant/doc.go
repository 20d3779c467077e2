// Package mutant breaks vans on purpose, one way at a time, to prove that
// vantest notices. Its test runs the suite against every mutation and fails
// when one survives, or is blamed on the wrong clause.
//
// A mutant wraps a working van. It has no threads. The rules for calls of its methods
// are the same as for the van inside. It owns no memory except what a
// mutation holds back.
package mutant
