// Package van is the contract between the link and a transport, and nothing else.
//
// A van carries messages (a wire header, its meta, a payload) between
// endpoints, one pair of endpoints per connection. Implementations are
// tcpvan, shmvan and memvan; the suite in vantest holds each of them to the
// clauses below.
//
//  1. An accepted operation yields exactly one completion, in Send itself (Message.Done) or as an
//     event; a rejected one none. Completions stay readable with Poll after Close until they are drained.
//  2. The source memory of an operation (the bytes of Message.Head and
//     Message.Payload) belongs to the van until its completion. The Message and its
//     outer slices (Payload, Target) are the caller's again when Send returns. With Message.Spare the bytes of
//     Payload are so, too: Spare belongs to the van in their place.
//  3. The payload of a message is visible in its destination before the
//     message is delivered.
//  4. Messages of one endpoint arrive in the order in which they were accepted.
//  5. A full queue is a return value, stepvan.ErrWouldBlock, without side effects, and
//     only while an operation of that endpoint is outstanding: its completion tells
//     when to try again.
//  6. Close is idempotent, may be called at any time from any goroutine, and
//     unblocks whoever waits in Dial. A Poll that begins after Endpoint.Close has
//     returned delivers no message of that endpoint.
//  7. Every byte of a peer is hostile. Lengths, versions and bounds are checked
//     before use. A bad peer costs its own connection (one EventLost with an
//     stepvan.ProtocolError or wire.VersionError), and nothing else.
//  8. Placement: before payload is read, the van asks the Placer for destinations. A small message that
//     is whole (Header.Total bytes) may come with its payload instead (Delivery.Payload).
//     A one-sided van writes, and maps (Granter.Map), only what a Grant allows (peer,
//     range, rights, generation), and nothing of a withdrawn one; what was written so is
//     delivered with Delivery.Written, and the Placer is not asked. A grant reaches
//     the peer before any message that is sent after Grant has returned, so such a message may
//     name it. The withdrawal of a grant completes when no write through it goes on
//     and no View of it is out; the bytes of a View stay readable, and by its rights writable,
//     until it is released, whatever happens to the connection or the peer.
//  9. A delivered message owns its Meta and its receive credit until Release.
//     While all credits of an endpoint are out, the endpoint delivers nothing more.
//  10. Each method says whether it may be called concurrently. Poll has one
//     caller at a time.
//  11. The loss of a peer is one EventLost per endpoint, after everything that
//     could still be delivered, and after the completions of everything accepted.
//     Closing an endpoint on this side yields its completions and no EventLost.
//     An endpoint of a one-sided van has one EventDetached after that (after EventLost,
//     or after the completions when it was closed on this side): its peer holds no View of, and
//     cannot reach, any memory that was granted on it. It may come long after the loss, when
//     the peer lives and keeps Views; until then memory whose withdrawal has not completed must not
//     be used for anything else. Nothing of the endpoint follows it. A closed van
//     reports it for endpoints whose peers hold nothing, and waits for no others.
//  12. Maximum sizes are in Caps. A larger message is refused with
//     stepvan.ErrInvalid; the caller cuts it.
//
// Threads: a van has none of its own on the data path. Dial and the
// acceptance of connections may use goroutines; sending happens on the caller
// of Send, receiving on the caller of Poll.
package van
