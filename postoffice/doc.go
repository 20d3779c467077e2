// Package postoffice tells every instance of a cluster its role and rank, and the peers that it talks to. It has the
// pairing, barriers, signs of life, and an orderly end. It is for stepvan itself: package ps shows what programs need
// of it.
//
// One [Scheduler] keeps the list of the cluster. Every worker, server and peer has an [Office], which keeps one session
// to the scheduler. The postoffice does not open sessions between them: [Office.Peers] lists the instances to dial, and
// [Office.Admit] vets those that dial. The peers of a worker are servers, and the reverse. Those of an instance with
// the role peer are all others with that role.
//
// # Start
//
//	worker, server, peer                  scheduler
//	  join (wanted rank, addresses,  ->   checks settings, size, rank
//	        shared settings)         <-   joined, or refused with the reason
//	                                 <-   waiting: who is missing, every few seconds
//	                                      (the last one has registered: ranks are fixed)
//	  servers, peers:                <-   start, peers
//	  ready                          ->
//	  workers (all servers ready):   <-   start, peers
//	  ready                          ->   running
//
// Workers hear of the servers only after every server has confirmed that it knows its workers. So a server never
// rejects a legitimate worker as unknown. Instances with the role peer dial each other, so no order serves them. They
// dial after a barrier over all roles, which nobody passes before every instance knows its peers. An instance hears
// only of its peers. The list is encoded once for all that share it, so the cost of a start grows with the instances
// plus the distinct lists.
//
// The scheduler ends a session that has not registered within JoinTimeout, whatever the peer says. It also ends the
// oldest of too many sessions that have not registered, to make room. An instance whose session ends in this way before
// the scheduler has answered tries again.
//
// # Epochs
//
// The view of the cluster is numbered. It begins with epoch 1, and each instance that leaves or dies makes it one
// higher. An instance that died stays in the view, marked dead.
//
// # Barriers
//
// A round of a barrier has a [Group] and counts either instances or nodes. Per instance, every instance of the group's
// roles must enter. Per node, one instance of each node (DMLC_GROUP_SIZE instances) is enough: the n-th call of an
// instance returns when every node has an instance that has made its n-th call. So all instances of a node may call, or
// only some, but always the same ones.
//
// The members of a group are fixed at the start. When one of them has left or died, all calls in the round and all
// later calls get an error that names it. A caller whose context ends is withdrawn from the round. Its next Barrier
// over the same group continues the one that timed out. If the round was completed in the very moment of the timeout,
// that call passes at once.
//
// # Board
//
// Any node may post small entries on the [Board], from which programs that were started apart learn of each other. The
// scheduler keeps it, and so decides the order of entries. A key belongs to the node that has posted it first, until
// that node removes the entry, leaves or dies.
//
//	node                                  scheduler
//	  post, remove                   ->
//	                                 <-   posted, or not posted with the reason
//	  watch (prefix)                 ->
//	                                 <-   board (what has changed for this watch, at most 64 KiB)
//	  next                           ->   (waits until there is news)
//
// A watch has one piece on its way at a time. For a watcher that is slow, the scheduler keeps the number of the last
// change that it has seen, and a short list of keys that are gone. When that list is full, the watch begins again with
// all entries.
//
// # Loss
//
// An instance is dead when its session to the scheduler breaks, or when it is silent for HeartbeatTimeout. All others
// get an error that names it. They notice the scheduler's own death in the same way. A scheduler or office whose own
// timer came late was stopped for a while: it does not count that time as silence of others. It believes in silence
// only when its link has looked for messages, which a process with little of the processors may not do in time. An
// instance that says goodbye has left and is not dead. A node that is closed without Stop says no goodbye.
//
// # Concurrency
//
// All exported methods may be called from any goroutine. OnDead is called one at a time, mostly on
// the node's driver: they must not block. Messages are small JSON objects on the control channel of the link, each at
// most 64 KiB. Unknown fields and operations are ignored, so that later versions can add some.
package postoffice
