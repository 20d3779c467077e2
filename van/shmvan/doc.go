// Package shmvan is the transport between processes of one machine and user: shared memory.
//
// # Connection
//
// A listener is a Unix socket (SOCK_SEQPACKET) in a private directory. Both sides check the user of the other
// (SO_PEERCRED), and pass two descriptors: a file of their own and a page of their van. The file holds control words,
// the ring of the records that the side sends (layout.go) and the table of its grants (table.go). Each process writes
// only its own files, which are sealed against every later writable mapping. It maps the peer's files for reading, so a
// peer that scribbles harms only itself. A side copies every word and every record of its peer once, and checks the
// copy. It refuses files that are not fully allocated or not sealed, so no access faults. The socket stays open: it
// carries further files (socket.go) and wakes a side that sleeps. Its end tells of the peer's end.
//
// A side whose peer has another version, of the hello or of the messages, tells its own version before it closes the
// connection.
//
// # Parts
//
// An endpoint has five parts: its connection (socket, state and lock), a sender, a receiver, the grants that it gives,
// and what it has mapped of the peer's memory.
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
// A head longer than an eighth of the ring (many hundred tensors in one request) is streamed. So is the payload behind
// it, unless that is written. So no request is too large for a small ring, which stays in the cache.
//
// A peer can use granted memory in place, without a copy ([van.Granter]). That takes no lock, no record and no
// attention of the granter. A withdrawal waits only for uses of the grant at that moment.
//
// One Poll copies at most a few MiB of a payload, so that other endpoints have their turn.
//
// The fast path has no system call: the consumer looks at the first word of the next record, which the producer
// writes last. A van that sleeps (Van.Arm) says so in its page. Only then does a sender send it a byte, once per sleep.
//
// # End
//
// A side that closes sets a word in its file and wakes the peer. When it holds no memory of the peer any more (no
// mapping, no view), it shuts its end of the socket down. The kernel does the same for a process that dies. The peer
// then reports EventDetached. A pidfd tells of the death as well.
//
// # What a peer of the same user can still do
//
//   - Make this side wait. process_vm_readv(2) reads foreign payload on the thread that polls. The sender's pages may
//     belong to a userfaultfd, or to a file of FUSE. Then they arrive when a process of the peer chooses to provide
//     them. Until then that thread, and what waits with it, does nothing else. Options.NoForeign
//     (STEPVAN_PEER_MEMORY=0) rules this out, at the cost of one more copy.
//   - Empty huge pages. The seals keep the size of a memory file. A seal that also forbids to punch holes into it would
//     forbid peers to write to it (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE), so files of tensors do not have one. Ordinary
//     pages that were taken away come back as zeros. Huge pages come back from the reserve. When that is empty, the
//     access faults with SIGBUS, in every process that maps the file. STEPVAN_HUGEPAGES=off at all nodes rules this
//     out. Rings have ordinary pages.
//
// Both take a peer that means harm. It runs as the same user, so it could as well send a signal. No accident does
// either.
//
// # Threads and memory
//
// Sending happens on the caller of Send, receiving on the caller of Poll. Goroutines exist for listening
// and greeting only.
//
// A connection takes two files, one of each side: RingBytes, a page, and 72 bytes for each of Options.Grants. With the
// defaults that is 804 KiB for each side, 1.6 MiB for a pair ([SideBytes]), and a page for each van. It is memory of
// the machine, allocated at once when the peer connects. It counts against the memory limit of the control group of the
// side that made it; the size of /dev/shm does not matter. A side that has sent a streamed head keeps as much ordinary
// memory as that head took.
package shmvan
