// Package vantest holds every van to the contract in package van.
//
// A van's tests describe it with a Factory and call Run: one sub-test per
// clause, in one process, for a run with the race detector. The test binary has a TestMain
// that calls Main with the factory. Run executes the binary again as the peer, kills it, stops it,
// and looks at what arrives. A van that does not cross processes (Factory.NoProcesses) needs no
// such TestMain. Fuzz feeds arbitrary bytes to a van.
//
// Whatever a case is about, the harness watches all of the contract:
//
//   - Every payload and meta carries bytes that follow from its connection, direction and sequence.
//   - The harness overwrites sources at completion, and the Message when Send returns.
//   - It poisons destinations before, and fences them with canaries.
//   - It counts completions, order, loss and credits on every endpoint.
//
// It reports a violation with the number of the clause. Every wait has a
// deadline, which fails the case and says what did not come.
//
// A case is a function of a trial, which makes the vans (node) and the connections between them. A side is one end of a
// connection, with the books that the harness keeps on it. The driver polls all vans and waits, and the reporter ends
// the case at the first violation.
//
// The file skip.go lists the cases that a van skips when its factory says what the van lacks. That is one-sided
// operations (Factory.TwoSided), views (NoViews), processes (NoProcesses) or a greeting (NoGreeting). Only factories
// that say so run the cases about a device (Offload, Registered). A van that loses connections (Factory.Lossy) skips
// all but the cases made for it. Any other skip is a failure, and so is a van that is not what its factory says.
//
// Package vantest/mutant breaks vans on purpose, to prove that the suite notices.
package vantest
