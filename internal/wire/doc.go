// Package wire is the form of messages between processes: one fixed little-endian header, tensor descriptors, payload.
//
//	| header, 128 bytes | meta: descriptors and extensions, Header.Meta bytes | payload, Header.Payload bytes |
//
// Every van carries this form, so a message means the same on each of them. Everything that this package parses comes
// from a peer. The package checks it against [Limits] before use. Nothing here allocates, blocks or keeps state. All
// functions may be called from any goroutine.
//
// Magic and Version keep their place in every later version, so that peers of different versions can report that.
// Version rises with each change that an older peer would take for a mistake or for hostility. That can be a change of
// the form, or of what a message may say.
package wire
