// Package stepvan defines what all packages of stepvan, a parameter server, share. These are the errors, and the types
// that name roles, ranks, pairings, routings and policies. In a cluster, workers push and pull tensors, servers answer
// them in batches, and a scheduler connects workers with servers.
//
// A program imports these packages:
//
//   - [github.com/stepvan/stepvan/ps] starts a node, and has every operation of workers and servers.
//   - [github.com/stepvan/stepvan/tensor] has tensors, their types and their memory.
//   - [github.com/stepvan/stepvan/trace] has the time stamps of exchanges.
//   - This package has the errors that the others return.
//
// The other packages are stepvan's own. A program needs some of their types, and package ps has a name for each of
// these.
//
// # Errors
//
// A call returns an error for a mistake of the program or of a peer, and for a fault of the environment or the
// hardware. It does not panic, and it does not end the process. The text of the error says what is wrong and what to
// do. Most errors are wrapped. Compare them with [errors.Is], and find an [OpError], [ConfigError], [ProtocolError] or
// [InternalError] with [errors.As].
package stepvan
