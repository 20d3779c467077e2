// Package vantest holds every van to the contract in package van.
//
// A van's tests describe it with a Factory and call Run: one sub-test per
// clause, in one process, to be run with the race detector. Unless its factory says that a van does not
// cross processes (Factory.NoProcesses), its test binary has a TestMain that calls Main with the factory; Run then executes the binary again as the peer, kills it, stops it,
// and looks at what arrives. Fuzz feeds arbitrary bytes to a van.
//
// Whatever a case is about, the harness watches all of the contract: every
// payload and meta carries bytes that follow from its connection, direction and
// sequence; sources are overwritten at completion; destinations are
// poisoned before and fenced with canaries; the Message is overwritten when Send returns;
// completions, order, loss and credits are counted on every endpoint. A
// violation is reported with the number of the clause that it violates. Every wait has a
// deadline, which fails the case and says what did not come.
//
// A van skips the cases that are listed in skip.go when its factory says that it has no one-sided operations
// (Factory.TwoSided), processes (NoProcesses) or greeting (NoGreeting), and all but those made for it when it loses connections (Factory.Lossy). Any other skip is
// a failure, and so is a van that is not what its factory says.
//
// Package vantest/mutant breaks vans on purpose, to prove that the suite notices.
package vantest
