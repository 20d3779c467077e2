// Package memvan is the transport between nodes of one process: for tests,
// for joint roles and for measuring what is above the vans.
//
// Vans of one Network reach each other by address. A network can be made hostile
// on purpose: delay and jitter, reorder between endpoints (never within one),
// loss of connections at seeded points, vans that stall or die. All of it
// follows from NetworkOptions.Seed and the order of the calls, and runs on the fake clock of
// testing/synctest as well as on the real one.
//
// Threads: none. Sending happens on the caller of Send, receiving on the
// caller of Poll; only a network with delay uses timers, which end with their connection.
//
// Memory: Message.Head is copied by Send, for a Delivery owns its Meta. Payload
// is copied once, from the source into the Placer's destination, by the
// receiver's Poll; the operation completes after that, so the source is held
// until the receiver has polled. With Options.OneSided, payload that has a Target
// is written by Send itself into the granted memory of the peer, as
// shared memory and RDMA do; a View is the peer's memory itself. Network.Kill counts as
// the end of a process: what it had viewed is free at once.
//
// When an endpoint is closed, what needs no source memory any more (messages without
// payload, payload already written one-sided) still reaches the peer; the
// first message that does need it, and all that follow, complete with an error. Close
// returns when no copy from or into the memory of this endpoint is going on.
package memvan
