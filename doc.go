// Package stepvan is the front page of stepvan, a parameter server. Workers push and pull tensors, servers answer them
// in batches, and a scheduler brings both together. The package has what all packages of stepvan share: the errors, and
// the words that name roles, ranks, routings and policies.
//
// A program imports these packages:
//
//   - [github.com/stepvan/stepvan/ps] starts a node, and has every operation of workers and servers.
//   - [github.com/stepvan/stepvan/tensor] has tensors, their types and their memory.
//   - [github.com/stepvan/stepvan/trace] has the time stamps of exchanges.
//   - This package has the errors.
//
// The other packages are stepvan's own. Package ps shows what a program needs of them.
//
// # Errors
//
// A mistake of the program, of a peer, of the environment or of the hardware is an error, never a panic and never an
// exit. Its text says what is wrong and what to do. Most errors are wrapped. Compare them with [errors.Is], and find an
// [OpError], [ConfigError], [ProtocolError] or [InternalError] with [errors.As].
package stepvan
