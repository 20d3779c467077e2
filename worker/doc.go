// Package worker is the requesting side: PushPull and its handles.
//
// A request becomes one message per server that it concerns (a part): header,
// tensor descriptors, payload. The caller's goroutine encodes and sends it;
// all parts are accepted by the link, or none is. Responses are read straight
// into the pull tensors.
//
// # Memory
//
// Tensors are borrowed from the call until the handle completes: the worker
// holds their regions, so that closing one is refused meanwhile, and keeps
// memory of the Go heap alive. A wait that times out changes nothing of that. A
// handle that fails, because a server was lost or refused its part, completes
// at once and not only when the other servers have answered: from then on nothing is
// written to the pull tensors, but the push tensors may still be read, and are
// held, until the other servers have received or lost their parts. What such a server
// receives of a tensor that is overwritten then is undefined, and its answer is dropped.
//
// Over a van that shares memory, a push goes by one of three ways. Where the server has registered memory for
// its key, the caller's goroutine writes it there; in a request that also pulls, a larger
// push (Options.InPlaceBytes) stays where it is and the server reads it there; else it is sent. A server that
// can reach a pull tensor may write the answer there. Which of it happens is not to be seen but in
// time: the tensors are lent to the server until it has answered, whatever became of the handle. When a server is lost
// and lives, the handle fails at once and the tensors stay held, so their regions
// cannot be closed, until the server has let go; until then it may also write to the pull tensors.
//
// # Keys
//
// A push key is busy from the call until every server that received it has
// answered: with the response to the pulls, or, when a request has none, with the
// server's empty respond, which comes after the handle has completed.
//
// # Threads
//
// Everything exported may be called from any goroutine. What arrives is handled on
// the driver of the node (see link/progress); state is guarded by one mutex that
// is held for a few instructions and never while sending or waiting.
//
// Budget of PushPull with Wait: 0 allocations in the steady state, one message
// and one encode per server, no lock but that mutex and those of the link.
package worker
