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
// left and is not dead.
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
