// Package link keeps one session per peer, over whichever van reaches the peer.
//
// A [Transport] is the local end of all sessions of an instance: its vans, its sessions, its channels, and the progress
// engine that drives them. A [Session] is the link to one peer. It carries messages of any size on channels. It keeps
// the order of messages within a channel, and not between channels. The sender cuts a large message into pieces, and
// the pieces of other channels pass between them.
//
// # Sending
//
// [Session.Send] sends on the caller's goroutine what the van takes. What the van does not take waits on the lane of
// its channel, and follows whenever the van completes something. The link borrows the memory of the message until
// Completer.Done, which says that the peer has acknowledged it. Every header acknowledges all messages of the other
// direction up to a sequence number. The link sends a message of its own when no other carries the acknowledgement in
// time.
//
// # Receiving
//
// The driver (package progress) calls the [Handler] of the message's channel: Place before the van reads the payload,
// Receive when the message is whole. A small payload comes with its header, and the driver calls Receive alone.
// Payload that the receiver has not released counts against the sender's credit. A receiver that keeps memory
// therefore slows only the senders of that memory.
//
// # Grants
//
// Over a one-sided van a session can grant memory to its peer ([Session.Grant]) and, where the van has views, see what
// the peer has granted ([Session.Map]). The payload of an [Outbound] with Targets is written into the peer's grants, on
// the caller's goroutine unless the message must wait. With Haste.Prompt the caller writes all of it before the message
// is queued, under no lock. Inbound.Written tells the receiver how much. [Session.Withdraw] and [Detacher] say when
// granted memory may be used for something else. The loss of a session alone does not say so.
//
// # Visitors and losses
//
// A peer that dials is a visitor until it has introduced itself, and until Options.Admit and the handlers have accepted
// it. A handler may keep it a visitor for longer ([Session.SetVisitor]). The number of visitors is bounded: a newcomer
// replaces the oldest. The link tells a loss after everything else that has arrived. It also waits for the loss of a
// session that may be the cause ([Session.TellLossFirst]).
//
// # Threads
//
// A transport has no goroutine of its own except the one of its engine, and timers. The goroutine that holds the token
// of the engine is the driver. It calls the handlers, one call at a time. Handlers may send, and must not block or
// wait. Session.mu guards the sending side; only the driver touches the receiving side.
package link
