// Package faults makes the vans of a test hostile on purpose. It delays, stalls, loses, separates and damages, over any
// van: a [Network] wraps what makes the vans.
//
// Faults that come by chance follow from [Options]. The others follow from the calls of the test: [Network.Cut],
// [Network.Partition], [Network.Kill], [Network.Stall] and [Network.Corrupt]. Without a fault a wrapped van does what
// the inner van does, and keeps the contract of package van. All of it runs on the fake clock of testing/synctest too.
//
// A connection is lost when the wrapper closes the endpoint of one side. The other side then learns of it as it would
// from a peer that has died. The wrapper reports EventLost to the side that it has closed, after all completions.
//
// Threads: the wrapper has none. A timer, Poll or Resume sends what is held back. They and the methods of Network may
// call the wake function, also over a van that has a descriptor.
//
// Memory: the wrapper copies a Message that it holds back. The bytes stay where they are: the van has them until the
// completion, as the contract says. A damaged head is a copy.
package faults
