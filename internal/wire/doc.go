// Package wire is the form that messages have between processes: one fixed
// little-endian header, tensor descriptors, payload.
//
//	| header, 128 bytes | meta: descriptors and extensions, Header.Meta bytes | payload, Header.Payload bytes |
//
// Every van carries this form, so a message means the same on each of them.
// Everything that is parsed here comes from a peer and is checked against
// Limits before it is used. Nothing here allocates, blocks or keeps state; all
// functions may be called from any goroutine.
//
// Magic and Version keep their place in every version to come, so that peers
// of different versions can tell each other so.
package wire
