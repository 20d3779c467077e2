// Package shmvan is the transport between processes of one machine and user: shared memory.
//
// # Connection
//
// A listener is a Unix socket (SOCK_SEQPACKET) in a private directory. Both sides check the user of
// the other (SO_PEERCRED), and pass descriptors: a file of their own, which holds control
// words, the ring of the records that they send (layout.go) and the table of what they grant (table.go), and a page of
// their van. Each process writes only its own files, which are sealed against every later writable mapping, and
// maps the peer's for reading: what a peer scribbles is its own. Every word and every record of a peer is
// copied once and checked then. Files that are not fully allocated or not sealed are refused, so no access faults.
// The socket stays open: it carries further files (socket.go) and wakes a side that sleeps. When it ends, the peer has ended.
//
// # Messages
//
// A message is a record in the ring: header, meta, and the payload in one of these ways:
//
//   - inline, up to Options.InlineBytes: copied into the ring and out of it;
//   - mapped: where it lies in a file of the sender's Options.Files, which the receiver maps, and
//     copies from (one copy, by the receiver);
//   - foreign: an address of the sender; the receiver copies with process_vm_readv(2), where the kernel lets
//     it (one copy). A nonce, read at the beginning, proves that it does;
//   - streamed through the ring, piece by piece (two copies), where that is forbidden;
//   - written: the sender has copied it into memory that the peer granted (one copy, by the sender).
//
// A head longer than an eighth of the ring (many hundred tensors in one request) is streamed, and the payload behind it,
// unless that is written: so rings are small, which keeps them in the cache, and no request is too large for them.
//
// Without a copy, granted memory can be used in place (van.Granter), without a lock, a record, or the attention of the
// granter. A withdrawal waits for who uses the grant at that moment, and for nobody else.
//
// One Poll copies no more than a few MiB of a payload: other endpoints have their turn.
//
// The fast path has no system call: the consumer looks at the first word of the next record, which the producer
// writes last. Who sleeps (Van.Arm) says so in its page; only then a sender sends a byte to it, once per sleep.
//
// # End
//
// A side that closes sets a word in its file and wakes the peer. It shuts its end of the socket
// down when it holds no memory of the peer any more (no mapping, no view), and the kernel does the same for a
// process that dies: that is EventDetached at the peer. A pidfd tells of the death as well.
//
// # What a peer of the same user can still do
//
//   - Make this side wait. process_vm_readv(2) reads foreign payload on the thread that polls, page by page as the sender's
//     memory is: pages of a userfaultfd, or of a file of FUSE, are there when some process of the peer's chooses to
//     provide them, and until then that thread, and who waits with it, does nothing else. Options.NoForeign
//     (STEPVAN_PEER_MEMORY=0) rules it out, at the cost of one more copy.
//   - Empty huge pages. The seals keep the size of a memory file. What would also forbid to punch holes into it forbids peers
//     to write to it (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE), so files of tensors are without. Ordinary pages that were taken away
//     come back as zeros. Huge pages come back from the reserve, and when that is empty the access faults with SIGBUS, in
//     every process that maps the file. STEPVAN_HUGEPAGES=off at all nodes rules it out. Rings have ordinary pages.
//
// Both take a peer that means harm: it runs as the same user, who could as well send a signal. No accident does either.
//
// # Threads and memory
//
// Sending happens on the caller of Send, receiving on the caller of Poll. Goroutines exist for listening
// and greeting only.
//
// A connection takes two files, one of each side: RingBytes, a page, and 72 bytes for each of Options.Grants. With the
// defaults that is 804 KiB for each side, 1.6 MiB for a pair (SideBytes), and a page for each van. It is
// memory of the machine, allocated at once when the peer connects, and counts against the memory limit of the control
// group of the side that made it; the size of /dev/shm does not matter. A side that has sent a streamed head keeps
// as much ordinary memory as that had.
package shmvan
