// Package peer moves tensors between any two processes of a cluster. Unlike workers and servers, peers are alike: each
// may send to each, and receive from each.
//
//   - [Peer.Send] and [Peer.Recv] move one view, matched by a tag.
//   - [Peer.Mail] sends a small message to those that listen to its topic.
//   - [Group] is for some peers that do the same things together.
//   - [Plan] moves many views at once. The peers agree on it once and run it as often as they like.
//
// # Ways
//
// A view has strides, and nothing is staged. The van decides which of these ways the elements take:
//
//	viewed    the sender's memory is shared: the receiver copies them to where they belong
//	written   only the receiver's memory is shared: the sender copies them to where they belong
//	streamed  neither is shared, or the van has no views: they travel in messages, gathered from where they lie and
//	          scattered to where they belong, or packed where the runs are short
//	local     both views are in one process
//
// Both ends derive the same boxes and chunks from what they have told each other. So a message names a chunk by its
// number. Wherever a hostile peer's bytes land, it is where the plan or the receive lets that peer write.
//
// # Sessions
//
// A pair of peers has one session, which the first operation or [Peer.Connect] opens. When two peers dial each other at
// once, the session of the lower rank stays.
//
// # Threads
//
// Operations do not block. The driver (package progress) handles what comes. Copies of more than 64 KiB are made by the
// goroutines of the movers, smaller ones by the caller or the driver. Peer.mu guards all state. It is not held during a
// copy of more than 16 KiB, nor while a listener runs.
//
// # Memory and loss
//
// The memory of an operation is borrowed until its handle completes, and that of a plan until [Plan.Close] has
// returned. A dead peer fails what names it, and nothing else. When an operation fails, the other peer may still copy
// a chunk. The region of the memory is retained until that peer has said that it does not, or can reach nothing any
// more.
//
// Whole memory files are granted: for reading to the receivers, and for writing to the senders. So the processes of a
// plan on one machine are trusted with the files that its views lie in.
package peer
