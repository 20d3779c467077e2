// Package ps starts a node of a cluster and has all its operations. A node is a worker, a server, the scheduler, or a
// worker and a server in one process (joint). With package tensor it is all that most programs import.
//
//	node, err := ps.StartFromEnv(ctx) // reads the environment, joins the cluster, waits until it is complete
//	h, err := node.PushPull(push, pushKeys, pull, pullKeys)
//	err = h.Wait(ctx)
//	err = node.Stop(ctx) // waits for the other nodes, then leaves
//
// # Operations
//
// A worker sends exchanges with [Node.PushPull] and [Node.Do], and waits for their [Handle]. A server takes the
// requests of its workers with [Node.GetBatch], and answers each with [Node.Respond] or all with [Node.RespondVec].
// [Node.RegisterRecvBuffer] chooses the memory that receives pushes. Both wait for each other with [Node.Barrier].
//
// # Start
//
// [Start] returns when every instance of the cluster is connected with its peers. It fails within
// STEPVAN_START_TIMEOUT, with one error that names the variable to change or the node that is missing. It has then
// closed everything that it had opened.
//
// # Loss
//
// An instance is dead when its connection breaks, or when it is silent for PS_HEARTBEAT_TIMEOUT. Operations that need
// it return an error that names it. The death of the scheduler ends the operations of all nodes.
//
// With lock-step batches (STEPVAN_BATCH=lockstep) a cluster works as one. No batch can be complete after a death, so
// the death of any worker or server ends the operations of all nodes. With the other policies only exchanges with the
// dead instance fail. A node that stops has left and is not dead. A node that is closed without Stop is dead for the
// others.
//
// # Mistakes of this library
//
// A panic on a goroutine of the node, or in a wait of the program, ends the node. Its operations return a
// [stepvan.InternalError]. Its connections break without a goodbye, so that the other nodes see it die. Stop returns
// the error at once. Then the panic goes up and ends the process, as with any Go package.
//
// With [ContainPanics] the panic ends the node and not the process. The report with the stack is in the log. Bindings
// to C and Python use this. The node may keep tensors of operations that were under way.
//
// A panic may leave a lock locked, so that the node cannot be closed. Calls may wait for that lock. The process ends
// after five seconds, and its last words name version, node, peer and operation. A "fatal error" of Go's runtime always
// ends the process.
//
// A panic in a call that does not wait ([Node.PushPull], [Node.Respond]) is the program's to recover. A program that
// recovers it calls [Node.Panicked]. A panic in a callback of the program, such as [OnDead], counts as one of the
// library. The setting STEPVAN_PANIC_AFTER rehearses all this.
//
// # Stop
//
// [Node.Stop] of a worker says goodbye to its servers at once, so the program waits for its exchanges before.
// [Node.GetBatch] of a server returns [stepvan.ErrClosed] when all its workers have said goodbye: then the program
// calls Stop there. Stop waits until every living node has called it. The scheduler leaves last.
//
// # Threads and memory
//
// All methods of [Node] may be called from any goroutine. The tensors of an exchange are borrowed until its [Handle]
// completes, those of a respond until its [Response] is done. The memory of a [Request] is the program's until it
// responds. Nothing is global: any number of nodes live in one process.
package ps
