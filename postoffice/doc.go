// Package postoffice tells every process who it is and whom it talks to: roles,
// ranks, pairing, barriers, signs of life, and an orderly end.
//
// One Scheduler keeps the list of the cluster; every worker and server instance
// has an Office, which keeps one session to the scheduler. Data sessions between
// workers and servers are not opened here: Office.Peers says whom to dial, and
// Office.Admit vets who dials.
//
// # Start
//
//	worker, server                        scheduler
//	  join (wanted rank, addresses,  ->   checks settings, size, rank
//	        shared settings)         <-   joined, or refused with the reason
//	                                 <-   waiting: who is missing, every few seconds
//	                                      (the last one has registered: ranks are fixed)
//	  servers:                       <-   start, peers
//	  ready                          ->
//	  workers (all servers ready):   <-   start, peers
//	  ready                          ->   running
//
// Workers hear of the servers only after every server has confirmed that it knows
// its workers, so a server never meets a stranger that is none. A node hears only
// of the nodes that it is paired with; the list is encoded once for all that
// share it, so the cost of a start grows with nodes plus distinct lists.
//
// Who has opened a session and not registered within JoinTimeout is put out, whatever it says; so is, to make
// room, the oldest of too many that have not registered. A node that this happens to before the
// scheduler has answered tries again.
//
// # Epochs
//
// The view of the cluster is numbered. It begins with epoch 1, and each node that
// leaves or dies makes it one higher. A node that died stays in the view, marked
// dead.
//
// # Barriers
//
// A round of a barrier is identified by its Group and by whether it counts
// instances or nodes. Per instance, every instance of the group's roles must
// enter. Per node, one instance of each node (DMLC_GROUP_SIZE instances) is
// enough: the n-th call of an instance returns when every node has an instance
// that has made its n-th call. So all instances of a node may call, or only some, but always the same ones.
//
// Membership is that of the start: when a member of the group has left or died,
// everybody in the round and everybody who enters later gets an error that names
// it. A caller whose context ends is withdrawn from the round. Its next Barrier over
// the same group continues the one that timed out: if the others were released in
// the very moment of the timeout, it passes at once.
//
// # Loss
//
// A session to the scheduler that breaks, or silence for HeartbeatTimeout, is the
// death of the node; everybody gets an error that names it. The scheduler's own
// death is noticed by all nodes the same way. Whoever finds that it was itself
// stopped for a while (its own timer came late) does not count that time as
// silence of others. A goodbye is leaving and not dying; a node that is closed without
// stop says none.
//
// # Concurrency
//
// All exported methods may be called from any goroutine. Callbacks (OnDead, OnLeft)
// are called one at a time, mostly on the node's driver: they must not block.
// Messages are small JSON objects on link.ChannelControl, each at most MaxMessage
// bytes; unknown fields and operations are ignored, so that later versions can add some.
package postoffice
