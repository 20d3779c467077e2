// Package link keeps one session per peer, over whichever van reaches it.
//
// A Node is this end of all links: its vans, its sessions, its channels and the
// progress engine that drives them. A Session is the link to one peer: it
// carries messages of any size on channels. Order is kept within a channel, not
// between channels: a large message is cut into pieces, between which the
// pieces of other channels pass.
//
// Sending: Session.Send puts the message on its channel's lane and emits what
// the van takes, on the caller's goroutine. The rest follows whenever the van
// completes something. The message's memory is borrowed until Completer.Done, which says
// that the peer has acknowledged it. Every message in the sequence is acknowledged
// cumulatively by a field of any message of the other direction, or by a
// message of its own when none comes.
//
// Receiving: the node's driver (see package progress) calls the Handler of the
// message's channel: Place before the payload is read, Deliver when it is whole.
// Payload that the receiver has not released counts against the sender's
// credit, so a receiver that keeps memory slows the senders of that memory and nobody else.
//
// Over a one-sided van a session can grant memory to its peer (Session.Grant) and see what was granted to
// it (Session.Map). An Outbound with Targets is written into the peer's grants on the
// caller's goroutine; its receiver gets it with Inbound.Written. Session.Withdraw and Detacher say when memory
// that was granted may be used for something else; the loss of a session alone does not.
//
// Peers that dial are visitors until they have introduced themselves and Options.Admit and the handlers have taken
// them; a handler may keep one a visitor for longer (Session.SetVisitor). Visitors are bounded: the oldest makes room. A loss is told
// after everything else that has arrived, and after that of a session whose loss may be its cause (Session.TellLossFirst).
//
// Threads: none but the engine's driver. Handlers are called by whoever drives, one
// call at a time; they must not block or wait, and may send.
package link
