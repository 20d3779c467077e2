package ps

import (
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// PushPull sends the push tensors to the servers, and the servers answer into the pull tensors. The routing of the
// settings applies. With [Broadcast] every server gets all pushes, and the pull tensors are server-major. PushPull
// never blocks. The [Handle] tells when the exchange has completed. The worker borrows the tensors until then: see
// [Exchange]. Budget: 0 allocations.
//
// After an error nothing was sent. The errors are:
//   - [stepvan.ErrInvalid]: an argument is wrong, or this node has no worker;
//   - [stepvan.ErrBusy]: a push key still has an unanswered push, or a server may still use the memory of a tensor
//     for an exchange that has failed;
//   - [stepvan.ErrWouldBlock]: a queue is full. Wait for an earlier handle, then try again;
//   - [stepvan.ErrPeerLost] in a [stepvan.OpError] that names the instance that was lost;
//   - [stepvan.ErrClosed]: the program has stopped the node, or closed the region of a tensor.
func (n *Node) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.PushPull(push, pushKeys, pull, pullKeys)
	return h, n.preferPanic("push_pull", err)
}

// Do is [Node.PushPull] with more choices. The program can choose the routing, name servers, accept shorter answers,
// and set a label for traces: see [Exchange]. Do returns the same errors as PushPull. Budget: 0 allocations.
func (n *Node) Do(x *Exchange) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.Do(x)
	return h, n.preferPanic("push_pull", err)
}

// GetBatch waits until the paired workers have sent the requests that the policy asks for. It returns one request of
// each worker that has sent one. It waits until ctx ends, and without a limit when ctx has none.
//
// The errors are:
//   - [stepvan.ErrClosed]: every paired worker has left, or the program has stopped this node;
//   - [stepvan.ErrPeerLost] in a [stepvan.OpError] that names a worker: the batch cannot be complete without it;
//   - [stepvan.ErrRefused], with [LockStep]: this server had to refuse one request, so the whole batch failed. The next
//     batch has one request of every worker again;
//   - [stepvan.ErrBusy]: another goroutine is in GetBatch;
//   - [stepvan.ErrInvalid]: the policy does not fit the settings, or this node has no server;
//   - the error of ctx: the requests wait for the next call.
func (n *Node) GetBatch(ctx context.Context, p Policy) (Batch, error) {
	var b Batch
	err := n.GetBatchInto(ctx, p, &b)
	return b, err
}

// GetBatchInto is [Node.GetBatch], but it writes the batch to b, and uses the memory of b again. Budget: 0 allocations
// in the steady state.
func (n *Node) GetBatchInto(ctx context.Context, p Policy, b *Batch) error {
	s, err := n.asBatchServer(p)
	if err != nil {
		return err
	}
	return n.preferCause("get_batch", s.GetBatchInto(ctx, p, b))
}

// GetBatchFor is [Node.GetBatchInto] with a time limit instead of a context. After d the error is
// [context.DeadlineExceeded]. A negative d means no limit. Budget: 0 allocations in the steady state.
func (n *Node) GetBatchFor(d time.Duration, p Policy, b *Batch) error {
	s, err := n.asBatchServer(p)
	if err != nil {
		return err
	}
	return n.preferCause("get_batch", s.GetBatchFor(d, p, b))
}

// asBatchServer is the server that may get batches by the policy.
func (n *Node) asBatchServer(p Policy) (*Server, error) {
	s, err := n.asServer("get_batch")
	if err == nil && p == LockStep && n.settings.Routing != stepvan.Broadcast {
		return nil, errs.Invalid("get_batch: lock-step: workers must push to every server (got STEPVAN_ROUTING=%s, want STEPVAN_ROUTING=broadcast): set it, or take ps.AnyReady or ps.AtLeast", n.settings.Routing)
	}
	return s, err
}

// Respond answers one request of a batch, with one tensor for each pull, in the order of the pulls. A request without
// pulls also needs an answer, which has no tensors. Respond never blocks. The server borrows the tensors until the
// [Response] is done. When the program changes them before that, the worker gets wrong numbers.
// STEPVAN_CHECK_BORROWED=1 finds this mistake. Budget: 0 allocations.
//
// After an error nothing was sent. The errors are:
//   - [stepvan.ErrInvalid]: the number or the sizes of the tensors do not fit the pulls, or this node has no server;
//   - [stepvan.ErrStale]: the program has answered the request before;
//   - [stepvan.ErrWouldBlock]: the queue to the worker is full. Wait for an earlier Response, then try again;
//   - [stepvan.ErrPeerLost] in a [stepvan.OpError]: the death of an instance has ended the work of the cluster;
//   - [stepvan.ErrClosed]: the program has stopped the node. The call takes the memory of the request back.
//
// When only the worker was lost, Respond returns nil, and [server.Response.Err] returns the error.
func (n *Node) Respond(tensors []tensor.Tensor, id RequestID) (Response, error) {
	s, err := n.asResponder("respond", id)
	if err != nil {
		return Response{}, err
	}
	r, err := s.Respond(tensors, id)
	return r, n.preferPanic("respond", err)
}

// RespondOn is [Node.Respond] for tensors of an accelerator on which a stream works. They are read when the work is
// over that the program queued to the stream before. When the device fails, [server.Response.Err] says so, and so does
// the handle of the worker. RespondOn returns the same errors as Respond without [stepvan.ErrWouldBlock].
func (n *Node) RespondOn(stream Stream, tensors []tensor.Tensor, id RequestID) (Response, error) {
	s, err := n.asResponder("respond", id)
	if err != nil {
		return Response{}, err
	}
	r, err := s.RespondOn(stream, tensors, id)
	return r, n.preferPanic("respond", err)
}

// RespondVecOn is [Node.RespondVec] with the stream of [Node.RespondOn].
func (n *Node) RespondVecOn(stream Stream, ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (Response, error) {
	s, err := n.asResponder("respond_vec", ids...)
	if err != nil {
		return Response{}, err
	}
	r, err := s.RespondVecOn(stream, ret, like, ids)
	return r, n.preferPanic("respond_vec", err)
}

// RespondVec cuts ret along dimension 0 into consecutive slices, and answers the request ids[i] with slice i.
// Slice i has as many rows as like[i]. RespondVec answers all requests or, on an error, none. It returns the same
// errors as [Node.Respond].
func (n *Node) RespondVec(ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (Response, error) {
	s, err := n.asResponder("respond_vec", ids...)
	if err != nil {
		return Response{}, err
	}
	r, err := s.RespondVec(ret, like, ids)
	return r, n.preferPanic("respond_vec", err)
}

// RespondCopy is [Node.Respond] for a program that uses its tensors again at once. RespondCopy copies the tensors, so
// the program may change them when it returns. When memory for the copy was short, borrowed is true. Then the program
// may change the tensors only when the [Response] is done. Budget: 0 allocations.
func (n *Node) RespondCopy(tensors []tensor.Tensor, id RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asResponder("respond", id)
	if err != nil {
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondCopy(tensors, id)
	return r, borrowed, n.preferPanic("respond", err)
}

// RespondVecCopy is [Node.RespondVec], but it copies ret as [Node.RespondCopy] copies its tensors.
func (n *Node) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asResponder("respond_vec", ids...)
	if err != nil {
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondVecCopy(ret, like, ids)
	return r, borrowed, n.preferPanic("respond_vec", err)
}

// RegisterRecvBuffer cuts the bytes of t into chunks of equal size. Chunk i receives what worker ranks[i] pushes with
// keys[i], without a copy where the van allows that. When a request has filled a chunk, the program owns the chunk
// until it responds to that request.
//
// The call waits until the workers know of the chunks, for ten seconds at most. After that the error is a
// [PendingError], and the buffer is registered. The other errors are:
//   - [stepvan.ErrInvalid]: the lists differ in length, t cannot be cut evenly, or a rank names no paired worker;
//   - [stepvan.ErrInvalid]: another registration holds the memory, or this node has no server;
//   - [stepvan.ErrBusy]: the call would replace a chunk that still belongs to an unanswered request;
//   - [stepvan.ErrClosed]: the program has stopped the node.
func (n *Node) RegisterRecvBuffer(t tensor.Tensor, ranks []Rank, keys []tensor.Key) (*ReceiveBuffer, error) {
	s, err := n.asServer("register_recv_buffer")
	if err != nil {
		return nil, err
	}
	reg, err := s.RegisterRecvBuffer(t, ranks, keys)
	return reg, n.preferCause("register_recv_buffer", err)
}

// Barrier waits until every member of the group has called it. With perInstance every instance is a member. Otherwise
// one instance of every node (DMLC_NODE_RANK) must call it. A joint node enters for each of its roles that is in the
// group. When ctx ends the wait, the next Barrier over the same group continues this one.
//
// The error is [stepvan.ErrInvalid] when this node is not in the group, or when another goroutine waits in the same
// barrier. It is [stepvan.ErrPeerLost] when a member has died or left. It is [stepvan.ErrClosed] after [Node.Stop], and
// else the error of ctx.
func (n *Node) Barrier(ctx context.Context, group Group, perInstance bool) error {
	if err := n.life.usable("barrier"); err != nil {
		return err
	}
	var tasks []func(context.Context) error
	for _, m := range n.members {
		if len(n.members) == 1 || group.Has(m.role) {
			tasks = append(tasks, func(ctx context.Context) error { return m.cluster.Barrier(ctx, group, perInstance) })
		}
	}
	if len(tasks) == 0 { // its role is not in the group, as the office says
		return n.members[0].cluster.Barrier(ctx, group, perInstance)
	}
	return n.inParallel(ctx, tasks...)
}

func (n *Node) asWorker(op string) (*Worker, error) {
	if err := n.life.usable(op); err != nil {
		return nil, err
	}
	if w := n.Worker(); w != nil {
		return w, nil
	}
	return nil, errs.Invalid("%s: this node: it has no worker (got DMLC_ROLE=%s, want worker or joint): call it on another node", op, n.Role())
}

func (n *Node) asServer(op string) (*Server, error) {
	s := n.Server()
	switch {
	case s == nil:
		if err := n.life.usable(op); err != nil {
			return nil, err
		}
		return nil, errs.Invalid("%s: this node: it has no server (got DMLC_ROLE=%s, want server or joint): call it on another node", op, n.Role())
	case !n.life.serving():
		return nil, stoppedError(op)
	}
	return s, n.life.failure(op)
}

// asResponder is the server that may answer requests. One that was stopped gives back their memory, since it can answer
// them no more.
func (n *Node) asResponder(op string, requests ...RequestID) (*Server, error) {
	s, err := n.asServer(op)
	if err != nil && n.Server() != nil && !n.life.serving() {
		for _, h := range requests {
			_, _ = n.Server().Respond(nil, h) // always refused; the caller has its error
		}
	}
	return s, err
}

// preferPanic replaces err, which may only follow from the node's end, by the panic that has ended it.
func (n *Node) preferPanic(op string, err error) error {
	if err != nil && n.life.broken.Load() != nil {
		return n.life.failure(op)
	}
	return err
}

// preferCause replaces err by the panic that has ended the node. If err is the loss of a peer, it waits until the
// scheduler says which loss came first. Where that loss has ended the cluster, it replaces err by it.
func (n *Node) preferCause(op string, err error) error {
	err = n.preferPanic(op, err)
	if errors.Is(err, stepvan.ErrPeerLost) && n.awaitDeathReport() {
		return n.life.failure(op)
	}
	return err
}

// deathReportTime is how long the scheduler may take to say which instance died first: a peer may have gone because of
// another.
const deathReportTime = 100 * time.Millisecond

// awaitDeathReport waits for a while, and reports whether a loss has ended the cluster.
func (n *Node) awaitDeathReport() bool {
	t := time.NewTimer(deathReportTime)
	defer t.Stop()
	select {
	case <-n.life.failed.Done():
		return true
	case <-t.C:
		return false
	}
}
