// Package worker is the side of an exchange that asks: PushPull, and the handles that it returns.
//
// It is for stepvan itself. Programs use package ps, which shows [Exchange], [Handle], [Registration] and
// [stepvan.Routing], and whose Node passes its calls on to a [Worker].
//
// An exchange becomes one request for each server that it goes to. A request is one message: header, tensor
// descriptors, payload. The goroutine that calls [Worker.Do] encodes and sends it. The link accepts all requests of
// an exchange, or none. A response that is sent is read straight into the pull tensors.
//
// # Memory
//
// There is one rule. A tensor is borrowed until its handle completes. If the handle fails, the tensor stays borrowed
// until no server can reach it.
//
// The worker holds the region of a borrowed tensor, so closing the region is refused. It also keeps memory of the Go
// heap alive. A wait that times out changes nothing of that. A handle that succeeds gives all tensors back. A handle
// that fails because a server was lost, or refused its request, completes at once and does not wait for the other
// servers. Their tensors are given back later, when each server
//
//   - has received the request, for push tensors that are sent;
//   - has answered, for pull tensors that it may write in place and push tensors that it reads in place. If the
//     server was lost, they are given back when its process cannot reach the memory any more.
//
// Until then Do refuses, with [stepvan.ErrBusy], to use memory that a server may write, and to pull into memory that
// a server may read. The error names the server and what to wait for. Pushing memory again that servers only read is
// allowed. So a program may push the same tensors to another server at once.
//
// Nothing can refuse what the program itself does with the memory. Until then pull tensors hold anything, and may
// change. If the program overwrites a push tensor, what a server sees of it is undefined, and the worker drops the
// answer. The worker copies nothing that arrives for a failed exchange to its pull tensors. A server that reaches them
// may still write there.
//
// Over a one-sided van, a push travels in one of three ways:
//
//   - If the server has registered a chunk for its key, the caller's goroutine writes the push there, or the van's
//     device does.
//   - If the exchange also pulls, and the van has views, a larger push ([Options].InPlaceBytes) stays in place. The
//     server reads it there. If the server cannot map a push of 128 KiB to 4 MiB, the caller's goroutine copies it to
//     pooled memory. The copy stays in place.
//   - Otherwise the push is sent.
//
// A server that can reach a pull tensor may write the answer there. A program sees the difference only in time, and
// in how long a failed exchange keeps its tensors.
//
// Tensors of an accelerator are staged: memory of the host stands for them while the exchange travels. Such an exchange
// waits for the stream of the program, and later exchanges wait behind it. Goroutines copy, which end when nothing is
// left. Do returns at once, but it allocates. Where a device of the van reaches the accelerator, nothing is copied.
//
// # Keys
//
// A push key is busy from the call of Do until every server that received it has answered. The answer is the response
// to the pulls or, in an exchange without pulls, the empty respond of the server. Then a handle succeeds. When a
// handle fails, its keys stay busy until the servers that live have answered. Nobody waits for a lost server: its
// keys are free before a program can see the error of the handle.
//
// # Threads
//
// Any goroutine may call everything exported. The driver of the node handles what arrives. One mutex guards the
// state. It is held while an exchange is prepared and for one small send, and never during a wait.
//
// Budget of PushPull with Wait: 0 allocations in the steady state, one message
// and one encoding per server. The only locks are that mutex and those of the link.
package worker
