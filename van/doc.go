// Package van is the contract between the link and a transport of bytes, and nothing else. It is for stepvan itself.
//
// A van carries messages (a wire header, its meta, a payload) between endpoints, one pair of endpoints per connection.
// The implementations are tcpvan, shmvan and memvan. The conformance suite in internal/vantest holds each of them to
// the clauses below.
//
//  1. An accepted operation has exactly one completion: in Send itself (Message.Done), or as an event. A rejected
//     operation has none. Completions stay readable with Poll after Close, until they are drained.
//  2. The source memory of an operation (the bytes of Message.Head and Message.Payload) belongs to the van until its
//     completion. The Message and its outer slices (Payload, Target) belong to the caller again when Send returns. With
//     Message.Spare the bytes of Payload do so too; Spare belongs to the van instead.
//  3. The payload of a message is visible in its destination before the message is delivered.
//  4. Messages of one endpoint arrive in the order in which they were accepted.
//  5. A full queue is a return value, stepvan.ErrWouldBlock, without side effects. It occurs only while an operation of
//     that endpoint is outstanding, whose completion tells when to try again.
//  6. Close is idempotent, may be called at any time from any goroutine, and unblocks callers of Dial. A Poll that
//     begins after Endpoint.Close has returned delivers no message of that endpoint.
//  7. Every byte of a peer is hostile. The van checks lengths, versions and bounds before it uses them. A bad peer
//     loses its own connection (one EventLost with a stepvan.ProtocolError or a wire.VersionError). Nothing else
//     happens.
//  8. Placement: the van asks the Placer for destinations before it reads payload. A small message that is whole
//     (Header.Total bytes) may come with its payload instead (Delivery.Payload). A one-sided van writes
//     (Message.Target) and maps (Viewer.Map) only what a Grant allows (peer, range, rights, generation), and nothing of
//     a withdrawn one. It delivers what was written so with Delivery.Written, and does not ask the Placer. The same
//     holds for what the sender has written through a View (Message.Written), which is visible before the message is
//     delivered. With Caps.Offload small segments may travel with the head (a zero Target), and Delivery.Payload has
//     them. A grant reaches the peer before any message that is sent after Grant has returned, so such a message
//     may name it. The withdrawal of a grant completes when no write through it is in progress and no View of it is in
//     use. The bytes of a View stay readable, and by its rights writable, until it is released, whatever happens to the
//     connection or the peer.
//  9. A delivered message owns its Meta and its receive credit until Release. While all credits of an endpoint are in
//     use, the endpoint delivers nothing more.
//  10. Each method says whether it may be called concurrently. Poll has one caller at a time.
//  11. The loss of a peer is one EventLost per endpoint. It follows everything that could still be delivered, and the
//     completions of everything accepted. An endpoint that this side closes has its completions and no EventLost.
//     An endpoint of a one-sided van has one EventDetached after that (after EventLost, or after the completions when
//     this side closed it). It says that the peer holds no View of the memory that was granted on the endpoint, and
//     cannot reach it. It may come long after the loss, when the peer lives and keeps Views. A van without Caps.Views
//     reports it as soon as its own side can receive nothing more, whatever the peer does. Until then memory whose
//     withdrawal has not completed must not be used for anything else. No event of the endpoint follows it. A closed
//     van reports it for endpoints whose peers hold nothing, and does not wait for the others.
//  12. Maximum sizes are in Caps. A van refuses a larger message with stepvan.ErrInvalid; the caller cuts it.
//
// What a grant is worth depends on the peer. Against a peer that keeps the rules, everything: it writes, and sees,
// exactly what is granted, until the withdrawal. Against any other peer, only what the van enforces on this side:
//
//   - With Caps.Guarded, that is the same. The peer reaches nothing but its own grants, and nothing of a withdrawn one.
//   - Without, the peer reaches whatever the van has opened to it for a grant. That is more than the grant, and stays
//     open for longer: the whole memory file over shmvan, all registered memory where a device has one key for it. It
//     never is memory that the van was not given.
//
// In both cases the peer may write into a grant at any moment, also while this process reads. So nothing that lies in
// granted memory may be trusted: lengths, offsets and pointers belong into the meta, which is a copy.
//
// A van with Caps.Registered has a device that reaches only registered memory (Registrar). Registration may take long.
// So the owner of the memory registers it beforehand, and Send and Grant only look it up. What they do not find is
// stepvan.ErrNotSupported, and goes another way.
//
// Threads: a van has no thread of its own on the data path. Dial and the acceptance of connections may use goroutines.
// Sending happens on the caller of Send, receiving on the caller of Poll.
package van
