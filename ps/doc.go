// Package ps starts a node of a cluster, and has all operations of a node. A node is a worker, a server, a peer, or the
// scheduler. A joint node is a worker and a server in one process. Most programs import only this package and package
// tensor.
//
//	node, err := ps.StartFromEnv(ctx) // reads the environment, joins the cluster, waits until it is complete
//	h, err := node.PushPull(push, pushKeys, pull, pullKeys)
//	err = h.Wait(ctx)
//	err = node.Stop(ctx) // waits for the other nodes, then leaves
//
// # Operations
//
// A worker sends exchanges with [Node.PushPull] and [Node.Do], and waits for their [Handle]. A server takes the
// requests of its workers with [Node.GetBatch]. It answers one with [Node.Respond], or several with [Node.RespondVec].
// It chooses the memory that receives pushes with [Node.RegisterRecvBuffer]. Workers and servers wait for each other
// with [Node.Barrier]. The nodes of programs that were started apart find each other on the [Board].
//
// # Start
//
// An instance is one worker, server or peer of the cluster. [Start] returns when every worker is connected with its
// servers, and every instance knows its peers. It fails when that takes longer than STEPVAN_START_TIMEOUT. The error
// names the setting to change or the instances that are missing. A Start that fails closes everything that it has
// opened.
//
// # Loss
//
// An instance is dead when its connection breaks, or when it is silent for PS_HEARTBEAT_TIMEOUT. Operations that need a
// dead instance return an error that names it. The death of the scheduler ends the operations of all nodes.
//
// With lock-step batches (STEPVAN_BATCH=lockstep) no batch can be complete after a death. So the death of any worker or
// server ends the operations of all workers and servers. With the other policies only exchanges with the dead instance
// fail. The death of a peer fails only what names it, and leaves workers and servers alone. A node that calls
// [Node.Stop] has left, and is not dead. A node that calls [Node.Close] without Stop is dead for the others.
//
// # Mistakes of this library
//
// A mistake of this library shows as a panic. A panic on a goroutine of the node, or in a call of the program that
// waits, ends the node. All operations of the node return a [stepvan.InternalError], and the other nodes see the node
// die. Then the panic ends the process, as with any Go package.
//
// With [ContainPanics] the panic ends the node and not the process. The log has the report with the stack. The bindings
// for C and Python use this option. The node may keep the tensors of operations that were under way.
//
// A panic may leave a lock locked. Calls may then wait for that lock, and the node cannot close. In this case the
// process ends after five seconds, even with ContainPanics. It prints the version, node, peer and operation. A "fatal
// error" of Go's runtime always ends the process.
//
// A panic in a call that does not wait, such as [Node.PushPull] or [Node.Respond], does not end the node by itself. A
// program that recovers such a panic must call [Node.Panicked]. A panic in a callback of the program, such as that of
// [OnDead], counts as one of the library. The setting STEPVAN_PANIC_AFTER causes a panic, so that a program can test
// all this.
//
// # Stop
//
// [Node.Stop] of a worker tells its servers at once that the worker leaves. So the program first waits for its
// exchanges. When all workers of a server have left, its [Node.GetBatch] returns [stepvan.ErrClosed]. Then the program
// of the server calls Stop. Stop waits until every living node has called it. The scheduler leaves last.
//
// # Threads and memory
//
// Any goroutine may call any method of [Node]. The node borrows the tensors of an exchange until its [Handle]
// completes. It borrows the tensors of an answer until its [Response] is done. Meanwhile the program must not change
// them. The program owns the memory of a [Request] until it responds. A process may have any number of nodes.
package ps
