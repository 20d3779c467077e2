// Package memvan is the transport between nodes of one process: for tests,
// for joint roles and for measuring what is above the vans.
//
// Vans of one Network reach each other by address. Tests that need delays, losses and stalls wrap them with
// internal/vantest/faults.
//
// Threads: the van has no threads and no timers. The caller of Send sends, and the caller of
// Poll receives.
//
// Memory: Send copies Message.Head, since a Delivery owns its Meta. The
// receiver's Poll copies payload once, from the source into the Placer's destination.
// The operation completes after that, so the van holds the source
// until the receiver has polled. With Options.OneSided, Send itself writes payload
// that has a Target into the granted memory of the peer, as shared memory and RDMA do.
// With Options.Offload, Send only posts such a payload. A device writes it, and its completion comes later. The poller
// of the receiver plays the device.
//
// A View is the peer's memory itself. With Options.NoViews the van has no views, as over RDMA.
//
// When an endpoint is closed, what needs no source memory any more still reaches the peer:
// messages without payload, and payload already written one-sided. The
// first message that does need its source, and all that follow, complete with an error. Close
// returns once no copy from or into the memory of this endpoint is under way.
package memvan
