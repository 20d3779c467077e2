// Package server is the answering side of stepvan. A [Server] receives the requests of its workers, hands them out in
// batches, and sends the responses. The package is for stepvan itself. Programs use it through package ps.
//
// # Life of a request
//
// A small payload comes with its request, and the server copies it. For a larger one the link asks the server for
// memory first. The server names the chunk that is registered for (worker, key), or pooled memory. Over a van that
// shares memory, the worker may write into the chunk by itself, or leave the tensor in its own memory for the server
// to read. A complete request joins the queue of its worker. [Server.GetBatch] takes the first request of each queue,
// by the policy of its caller. [Server.Respond] answers one request, once.
//
// # Memory
//
// A chunk of a receive buffer belongs to the server from the delivery of a push until the respond. After it the next
// push of the key may overwrite the chunk. The same holds for pooled memory, which returns to the pool. The lists that
// [Request.Pushes], [Request.PushKeys] and [Request.Pulls] return belong to the server and end with the respond too.
//
// [Request.In] and [Request.Out] let a program work in place, in the same way over every van. They return views of the
// worker's tensors where the server can reach these, else the chunk or pooled memory. [Request.Pushes] never returns a
// view, because programs write to its tensors. Respond sends only what is not in the worker's memory yet. Views end
// with the respond: later uses return stepvan.ErrClosed or stepvan.ErrStale. A tensor of one request may answer another
// request; then it must stay valid until that [Response] is done. A view stays readable when its worker dies.
//
// A worker may write into a chunk by itself while it has a grant. The chunk's memory belongs to the program again when
// the grant is withdrawn or the worker is dead. [ReceiveBuffer.Unregister], and the [Server.RegisterRecvBuffer] that
// replaces a chunk, wait for that, up to Options.Patience. [ReceiveBuffer.Wait] waits as long as its context allows.
//
// Over a van that shares memory, the worker fetches a response from the program's tensors, or the server writes it into
// the pull tensors (copying.go says when). Where a device moves payload, the server has it write every response that it
// can. The program sees no difference.
//
// Respond borrows its tensors until the worker has acknowledged the response, which [Response] tells. A program that
// changes a tensor earlier may send the changed bytes; Options.CheckBorrowed finds such changes. [Server.RespondCopy]
// returns the tensors at once. Answers may be views of the request's own chunk: the worker pushes a key again only
// after it has the whole response.
//
// A receive buffer may lie in memory of an accelerator. Then memory of the host receives the pushes, and a goroutine
// copies them to the accelerator before GetBatch hands the request out. Answers of an accelerator are copied to pooled
// memory by a goroutine each, after the stream of the program has done its work. Until then the request counts as being
// answered. Where a device of the van reaches the accelerator, nothing is copied.
//
// # Threads
//
// One goroutine at a time may be in GetBatch; a second one gets stepvan.ErrBusy. Any goroutine may call everything else
// that is exported. The driver of the transport handles what arrives (see internal/link/progress). One mutex guards the
// state. It is never held during a wait. A request is prepared and a message of at most 16 KiB is copied and sent with
// the mutex held; for a larger one the sender unlocks it.
//
// # Budget
//
// GetBatchInto with Respond or RespondCopy makes 0 allocations in the steady state, and sends one message per respond.
package server
