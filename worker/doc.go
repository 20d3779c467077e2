// Package worker is the requesting side: PushPull and its handles.
//
// A request becomes one message per server that it concerns (a part): header,
// tensor descriptors, payload. The caller's goroutine encodes and sends it;
// all parts are accepted by the link, or none is. Responses are read straight
// into the pull tensors.
//
// # Memory
//
// One rule: a tensor is borrowed until its handle completes and, when that fails, until no server can reach it any more.
//
// While it is borrowed the worker holds its region, so that closing it is refused, and keeps memory of the Go heap
// alive. A wait that times out changes nothing of that. A handle that succeeds gives all tensors back. One that fails,
// because a server was lost or refused its part, completes at once and not only when the other servers have answered; what
// is left of it is given back when each server that is concerned
//
//   - has received the part, for the push tensors that are sent;
//   - has answered or, when it was lost, has let go of the memory, for what it reaches in place: pull tensors that it may
//     write to, push tensors that it reads where they are.
//
// Until then Do refuses, with stepvan.ErrBusy that names the server and what to wait for, to use what may be written to,
// and to pull into what may be read. To push again what is only read is in order, so the same push tensors may go to
// another server at once. What the program itself does with the memory nothing can refuse: pull tensors hold anything, and may change;
// what a server sees of a push tensor that is overwritten is undefined, and its answer is dropped.
// Nothing that arrives for a failed request is copied to its pull tensors.
//
// Over a van that shares memory, a push goes by one of three ways. Where the server has registered memory for
// its key, the caller's goroutine writes it there; in a request that also pulls, a larger
// push (Options.InPlaceBytes) stays where it is and the server reads it there; else it is sent. A server that
// can reach a pull tensor may write the answer there. Which of it happens is not to be seen but in
// time, and in how long a failed request keeps its tensors.
//
// # Keys
//
// A push key is busy from the call until every server that received it has
// answered: with the response to the pulls or, when a request has none, with the
// server's empty respond. That is when a handle succeeds. When one fails, the servers that live still have its keys
// until they answer. A server that was lost is not waited for: its
// keys are free before the error of a handle can be seen.
//
// # Threads
//
// Everything exported may be called from any goroutine. What arrives is handled on
// the driver of the node (see internal/link/progress); state is guarded by one mutex that
// is held for a few instructions and never while sending or waiting.
//
// Budget of PushPull with Wait: 0 allocations in the steady state, one message
// and one encode per server, no lock but that mutex and those of the link.
package worker
