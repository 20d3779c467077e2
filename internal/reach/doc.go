// Package reach answers one question for a node: by which addresses and vans does it reach its peers, and why?
//
// Every instance has an [Endpoint]: its link, with one or two vans. The base van is TCP between machines, Unix sockets
// with DMLC_LOCAL=1, or the network of one process. Shared memory stands beside it where settings and machine allow it.
//
//   - [Endpoint.Listen] makes the addresses of a server or a peer. [Endpoint.Dial] chooses among those of a peer.
//   - [Endpoint.Explain] says what carries the tensors of a session, and why.
//   - [Host.ServerAddress] finds the address of a server or a peer between machines.
//   - [Check] says which settings this build and this machine refuse. [TryPair] and [TryScheduler] look without a
//     cluster.
//
// Package ps builds nodes on it, and `stepvan doctor` predicts with it what a node will do. All functions may be called
// from any goroutine.
package reach
