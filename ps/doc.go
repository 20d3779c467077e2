// Package ps makes a running node of settings: a worker, a server, the scheduler,
// or a worker and a server in one process (joint). It is what programs import; with
// package tensor it is all they need.
//
//	node, err := ps.StartFromEnv(ctx)  // join, get a rank, connect, pass the start barrier
//	h, err := node.PushPull(push, pushKeys, pull, pullKeys)
//	err = h.Wait(ctx)
//	err = node.Stop(ctx)               // wait for everybody alive, then leave
//
// It is the composition root: the only package that knows settings and all layers.
// It hands vans to links, links to the postoffice, and both to workers and servers,
// through constructors; nothing is global, so any number of nodes live in one process.
//
// # Start
//
// Start returns when every node of the cluster is connected with its peers, and
// fails within STEPVAN_START_TIMEOUT with one error that names the variable to
// change or the node that is missing. Whatever it had opened is closed then.
//
// # Loss
//
// A node that dies (its connection breaks, or it is silent for PS_HEARTBEAT_TIMEOUT)
// is an error for whoever waits for it, and the error names it; so is the scheduler's
// death for everybody. With lock-step batches (STEPVAN_BATCH=lockstep) a cluster works
// as one: no batch can be complete any more, so the death of any worker or server ends
// the operations of all nodes with an error that names it. With the other policies
// only exchanges with the dead node fail, and the others go on. A node that stops has
// left and is not dead; one that is closed without Stop is.
//
// # Mistakes of this library
//
// A panic on a goroutine of the node, or in a wait of the program, ends the node: its waits and operations return an
// *InternalError, its connections break without a goodbye, so that the others see it die, and Stop returns the error at once. Then
// the panic goes on and ends the process, as with any Go package: the trace is seen, and nothing works on with a state that
// nobody knows. A program for which one node is not all sets ContainPanics: the panic ends there, its report with the stack is
// in the log, and the rest of the process lives. That is what C and Python get. Tensors of operations that were under way may stay
// held by the node.
//
// A lock that the panic has left locked keeps the node from being closed. Calls may wait for it; after five seconds the process
// ends, and its last words name version, node, peer and operation. What Go's runtime itself cannot go on from ("fatal error") ends the process in any case.
//
// A panic in a call that does not wait (PushPull, Respond) is the program's to recover, or not; one that recovers it says so by Node.Panicked.
// Callbacks of the program run on the driver, and count as its part. STEPVAN_PANIC_AFTER rehearses all this.
//
// # Stop
//
// Stop of a worker says goodbye to its servers at once: its requests should have been
// waited for. A server whose workers have all said goodbye gets ErrClosed from
// GetBatch, which is the time to call Stop there. Stop then waits until every node that
// lives has called it; the scheduler leaves last.
//
// # Threads and memory
//
// All methods of Node may be called from any goroutine. Who owns tensors, chunks and
// handlers, and until when, is said in packages worker and server, whose types are
// published here under their own names.
package ps
