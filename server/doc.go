// Package server is the answering side: registered buffers, GetBatch and Respond.
//
// # A request's way
//
// The link asks where the payload shall go before it reads it: into the chunk that
// is registered for (worker, key), or into pooled memory. Over a van that shares memory the worker
// writes into the chunk itself, or leaves the tensor where it is, to be read there. When all of it is
// there the request joins the queue of its worker. GetBatch takes the first of
// each queue, by the policy that the caller names; Respond answers one of them, once.
//
// # Memory
//
// A chunk of a registered buffer is the server's from the delivery of a push
// until the respond to it; then the next push of that key may overwrite it. The
// same holds for pooled memory, which goes back to the pool. What Request.Pushes and its
// other lists return belongs to the server and ends with the respond, too.
//
// Request.In and Request.Out are for work in place, with one program for every van: views of
// the worker's tensors where these can be reached, else the chunk or pooled memory. What Request.Pushes returns is
// never a view: programs write to it. Respond sends
// only what is not there yet. Both end with the respond: a view is then stepvan.ErrClosed or stepvan.ErrStale. A
// tensor of one request that answers another one must not end before the Response of that is
// done. A view stays readable though its worker has died meanwhile.
//
// A chunk that its worker writes into by itself is the program's again only when the worker
// has let go of it or is dead, which Unregister and the replacing RegisterRecvBuffer wait for: up to Options.Patience, and
// Registration.Wait as long as its context says.
//
// Tensors given to Respond are borrowed until the worker has acknowledged the
// response, which Response tells; changed before, they may reach the worker with what they hold then (Options.CheckBorrowed finds
// that). RespondCopy gives them back when it returns. They may be views of the request's own
// chunk: the worker pushes a key again only after it has the whole response.
//
// # Threads
//
// GetBatch has one caller at a time (a second gets stepvan.ErrBusy). Everything else
// exported may be called from any goroutine. What arrives is handled on the
// driver of the node (see internal/link/progress). State is guarded by one mutex that is
// held for a few instructions and never while sending or waiting.
//
// Budget of GetBatchInto with Respond or RespondCopy: 0 allocations in the steady state, one
// message and one encode per respond.
package server
