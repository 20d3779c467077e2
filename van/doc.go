// Package van is the contract between the link and a transport, and nothing else.
//
// A van carries messages (a wire header, its meta, a payload) between
// endpoints, one pair of endpoints per connection. Implementations are
// tcpvan and memvan; the suite in vantest holds each of them to the
// clauses below.
//
//  1. An accepted operation yields exactly one completion; a rejected one none.
//     Completions stay readable with Poll after Close until they are drained.
//  2. The source memory of an operation (Message.Head, Message.Payload) belongs to
//     the van until its completion.
//  3. The payload of a message is visible in its destination before the
//     message is delivered.
//  4. Messages of one endpoint arrive in the order in which they were accepted.
//  5. A full queue is a return value, errs.ErrWouldBlock, without side effects.
//     A completion of that endpoint tells when to try again.
//  6. Close is idempotent, may be called at any time from any goroutine, and
//     unblocks whoever waits in Dial.
//  7. Every byte of a peer is hostile. Lengths, versions and bounds are checked
//     before use. A bad peer costs its own connection (one EventLost with an
//     errs.ProtocolError or wire.VersionError), and nothing else.
//  8. Placement: before payload is read, the van asks the Placer for destinations.
//     A one-sided van writes only where a Grant allows (peer, range,
//     generation), and never through a withdrawn one.
//  9. A delivered message owns its Meta and its receive credit until Release.
//     While all credits of an endpoint are out, the endpoint delivers nothing more.
//  10. Each method says whether it may be called concurrently. Poll has one
//     caller at a time.
//  11. The loss of a peer is one EventLost per endpoint, after everything that
//     could still be delivered, and after the completions of everything accepted.
//     Closing an endpoint on this side yields its completions and no EventLost.
//  12. Maximum sizes are in Caps. A larger message is refused with
//     errs.ErrInvalid; the caller cuts it.
//
// Threads: a van has none of its own on the data path. Dial and the
// acceptance of connections may use goroutines; sending happens on the caller
// of Send, receiving on the caller of Poll.
package van
