// Package memvan is the transport between nodes of one process: for tests,
// for joint roles and for measuring what is above the vans.
//
// Vans of one Network reach each other by address. A test can make a network hostile
// on purpose: delay and jitter, reorder between endpoints (never within one),
// loss of connections at seeded points, vans that stall or die. All of it
// follows from NetworkOptions.Seed and the order of the calls, and runs on the fake clock of
// testing/synctest as well as on the real one.
//
// Threads: the van has no threads of its own. The caller of Send sends, and the caller of
// Poll receives. Only a network with delay uses timers, which end with their connection.
//
// Memory: Send copies Message.Head, since a Delivery owns its Meta. The
// receiver's Poll copies payload once, from the source into the Placer's destination.
// The operation completes after that, so the van holds the source
// until the receiver has polled. With Options.OneSided, Send itself writes payload
// that has a Target into the granted memory of the peer, as shared memory and RDMA do.
// A View is the peer's memory itself. Network.Kill counts as
// the end of a process: what that process had viewed is free at once.
//
// When an endpoint is closed, what needs no source memory any more still reaches the peer:
// messages without payload, and payload already written one-sided. The
// first message that does need its source, and all that follow, complete with an error. Close
// returns once no copy from or into the memory of this endpoint is under way.
package memvan
