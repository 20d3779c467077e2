// Package files grants whole memory files of this process to the peers of sessions, each file once.
//
// Over a one-sided van a peer works in this process's memory where that can be shared. A grant for each tensor would
// be a message each time, and their number is bounded. So a service grants the file that a tensor lies in, when it
// first names a tensor in that file to a peer. Later tensors of the same file are an offset in the same grant.
//
// Where the van's device reaches only registered memory ([link.Caps].Registered), a registered region takes the place
// of the file. It has a number as a file has, and the same rules hold for it.
//
// [Grants] is what the peer of one session was granted. The services that see link have one for each session, and
// their own lock guards it. [Watcher] tells a service which files go back to the system, and [Withdraw] ends their
// grants.
//
// Budget of [Grants.Reach]: 0 allocations and no message for a file that was named before, granted or not.
package files
