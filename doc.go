// Package stepvan is the front page of stepvan, a parameter server: workers push and pull tensors, servers answer them in
// batches, and a scheduler brings both together. It holds the errors that all packages of stepvan return.
//
// A program imports these packages:
//
//   - [github.com/stepvan/stepvan/ps] starts a node, and has every operation of workers and servers.
//   - [github.com/stepvan/stepvan/tensor] has tensors, their types and their memory.
//   - [github.com/stepvan/stepvan/trace] has the time stamps of exchanges.
//   - This package has the errors.
//
// The other packages are stepvan's own. What a program needs of them, package ps shows.
//
// # Errors
//
// A mistake of the program, of a peer, of the environment or of the hardware is an error, never a panic and never an exit.
// Its text says what is wrong and what to do. Most errors are wrapped: compare them with [errors.Is], and find an
// [OpError], [ConfigError], [ProtocolError] or [InternalError] with [errors.As].
package stepvan
