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
// # Conversions and merges
//
// With [Move.Wire] the elements of a plan are converted once, while they are copied (package cast). Where they travel
// in messages, the end whose type differs from Wire converts: the sender when it packs, the receiver when the elements
// land. A conversion costs no memory beyond a chunk.
//
// Several receives with a [Move.Merge] bring elements to one view. Only the receiver writes to that view, in units of
// at most 1 MiB. It takes the sources of a unit one after the other, in the order of their IDs. So the bits of the
// result are the same every time and by every way. What that costs:
//
//   - The merge begins when all peers that bring elements have offered the run. It waits for the slowest one.
//   - Sources in shared memory are read where they are, and a run has two messages a pair as without merges.
//   - Other sources are pulled: the receiver asks for the elements of a unit, and the pieces wait in pooled memory
//     until all of them are there. There is room for two units, each with at most 4 MiB of pieces. Where so many
//     sources are pulled that 4,096 elements of each take more, a unit has 4,096 elements. The pool has this memory
//     back after a run.
//     Each piece costs one message more than a chunk, and is copied once more.
//   - All of this is in the type of the destination, except that small floats are added in float32 and rounded once for
//     each source. A mean is the sum, divided at the end.
//
// # Replicas
//
// With [PlanOptions] a view that goes to several peers on other machines is sent once. Its receivers pass the elements
// on along a chain: each chunk as soon as it has landed, out of the destination. A run of such a receiver completes
// when it has passed on everything. So one that never begins holds up the receivers before it, and a death fails the
// run at those before and behind.
//
// # Groups
//
// [Group.Broadcast] and [Group.Reduce] agree on a plan, run it once, and close it. So they are for views that are not
// moved again and again in the same way. The root sends to each member, and each member sends to the root.
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
