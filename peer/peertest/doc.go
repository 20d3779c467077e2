// Package peertest holds package peer to what it promises, over any van: transfers, mail, windows, groups and plans,
// wrong input, deaths and departures.
//
// A case is a program that all members of a cluster run, each with its own [Peer]. [Run] runs the members as goroutines
// of one process. The tests of this package also run each member in a process of its own, with a scheduler. The members
// meet to agree on what comes next. They do so without package peer, so that a case can tell what is wrong.
//
// A member overwrites the source of a transfer as soon as that is over, and the destination once it has looked at it.
// So bytes that are read or written too late are noticed.
//
// The tests of this package also run the cases with peers that break a promise, and fail when the cases pass.
package peertest
