package ps

import (
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// PushPull sends every push tensor to the servers, and has them write the pull tensors. The settings say which routing
// it uses. With [Broadcast] every server gets all pushes, and the pull tensors are server-major. PushPull never
// blocks: the [Handle] tells when the exchange has completed. The tensors are borrowed until then: see [Exchange]. 0
// allocations.
//
// Errors, with which nothing was sent:
//   - [stepvan.ErrInvalid]: an argument contradicts the contract;
//   - [stepvan.ErrBusy]: a push key still has an unanswered push, or a server may still use the memory of a tensor
//     for an exchange that has failed;
//   - [stepvan.ErrWouldBlock]: a queue is full. Wait for a handle, then try again;
//   - [stepvan.ErrPeerLost] in an [stepvan.OpError] that names the server;
//   - [stepvan.ErrClosed]: the node was stopped, or the memory of a tensor was closed.
func (n *Node) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.PushPull(push, pushKeys, pull, pullKeys)
	return h, n.preferPanic("push_pull", err)
}

// Do sends an exchange. Unlike with [Node.PushPull], the program can choose the routing, name servers, accept pulls of
// variable length, and set a label for traces. Do returns the same errors as PushPull. 0 allocations.
func (n *Node) Do(x *Exchange) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.Do(x)
	return h, n.preferPanic("push_pull", err)
}

// GetBatch waits until the policy is met by requests of the paired workers, and returns one request of each worker that
// has one. It waits as long as the workers live, or until ctx ends.
//
// Errors:
//   - [stepvan.ErrClosed]: every paired worker has stopped, or this node has;
//   - [stepvan.ErrPeerLost] in an [stepvan.OpError] that names the worker without which the batch cannot be complete;
//   - [stepvan.ErrRefused], with [LockStep]: this server had to refuse a request of the batch. The next one is
//     complete;
//   - [stepvan.ErrBusy]: another goroutine is in GetBatch;
//   - [stepvan.ErrInvalid]: the policy does not fit the settings;
//   - the error of ctx: the requests stay for the next call.
func (n *Node) GetBatch(ctx context.Context, p Policy) (Batch, error) {
	var b Batch
	err := n.GetBatchInto(ctx, p, &b)
	return b, err
}

// GetBatchInto is [Node.GetBatch] into a batch whose memory is used again. 0 allocations in the steady state.
func (n *Node) GetBatchInto(ctx context.Context, p Policy, b *Batch) error {
	s, err := n.asBatchServer(p)
	if err != nil {
		return err
	}
	return n.preferCause("get_batch", s.GetBatchInto(ctx, p, b))
}

// GetBatchFor is [Node.GetBatchInto] with a limit of time in place of a context. A negative limit means none.
// 0 allocations in the steady state.
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

// Respond answers the pulls of one request of a batch, in their order, once. A request without pulls is answered
// without tensors. Respond never blocks. The tensors are borrowed until the [Response] is done: a worker gets wrong
// numbers when the program changes them before (STEPVAN_CHECK_BORROWED=1 finds that). 0 allocations.
//
// Errors, with which nothing was sent:
//   - [stepvan.ErrInvalid]: number or sizes of the tensors do not fit the pulls;
//   - [stepvan.ErrStale]: the request was answered before;
//   - [stepvan.ErrWouldBlock]: the queue to the worker is full. Wait for an earlier Response, then try again;
//   - [stepvan.ErrPeerLost] in an [stepvan.OpError]: a death has ended the work of the cluster;
//   - [stepvan.ErrClosed]: the node was stopped. The call gives back the memory of the request.
//
// The loss of a worker is not an error of Respond: [server.Response.Err] returns it.
func (n *Node) Respond(tensors []tensor.Tensor, h RequestID) (Response, error) {
	s, err := n.asResponder("respond", h)
	if err != nil {
		return Response{}, err
	}
	r, err := s.Respond(tensors, h)
	return r, n.preferPanic("respond", err)
}

// RespondVec cuts ret along dimension 0 into consecutive slices, and answers handlers[i] with slice i. Slice i has as
// many rows as like[i]. RespondVec answers all requests or, on an error, none. It returns the same errors as
// [Node.Respond].
func (n *Node) RespondVec(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (Response, error) {
	s, err := n.asResponder("respond_vec", handlers...)
	if err != nil {
		return Response{}, err
	}
	r, err := s.RespondVec(ret, like, handlers)
	return r, n.preferPanic("respond_vec", err)
}

// RespondCopy is [Node.Respond] for a program that uses its tensors again at once. The program may change them when
// RespondCopy returns. When memory was short, borrowed is true: then it may change them when the [Response] is done.
// 0 allocations.
func (n *Node) RespondCopy(tensors []tensor.Tensor, h RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asResponder("respond", h)
	if err != nil {
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondCopy(tensors, h)
	return r, borrowed, n.preferPanic("respond", err)
}

// RespondVecCopy is [Node.RespondVec], but it copies the tensor as [Node.RespondCopy] does.
func (n *Node) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asResponder("respond_vec", handlers...)
	if err != nil {
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondVecCopy(ret, like, handlers)
	return r, borrowed, n.preferPanic("respond_vec", err)
}

// RegisterRecvBuffer cuts the bytes of t evenly into chunks. Chunk i receives what worker ranks[i] pushes with keys[i],
// without a copy where the van allows that. A chunk is the program's from the request that filled it until its respond.
//
// The call waits until the workers know of the chunks, for ten seconds at most. Then the buffer is registered all the
// same, and the error is a [PendingError], on whose Buffer the program can wait. Other errors:
//   - [stepvan.ErrInvalid]: the lists differ in length, t cannot be cut evenly, a rank is not that of a paired worker,
//     or another registration holds the memory;
//   - [stepvan.ErrBusy]: a request on a chunk that this one would replace is unanswered;
//   - [stepvan.ErrClosed]: the node was stopped.
func (n *Node) RegisterRecvBuffer(t tensor.Tensor, ranks []Rank, keys []tensor.Key) (*ReceiveBuffer, error) {
	s, err := n.asServer("register_recv_buffer")
	if err != nil {
		return nil, err
	}
	reg, err := s.RegisterRecvBuffer(t, ranks, keys)
	return reg, n.preferCause("register_recv_buffer", err)
}

// Barrier waits until every member of the group has called it: every instance or, when not perInstance, one instance of
// every node. A joint node enters for each of its roles that is in the group. Barrier waits as long as the members
// live, or until ctx ends. The next Barrier over the same group then continues this one.
//
// The error is [stepvan.ErrInvalid] when this node is not in the group, or another goroutine waits in the same barrier.
// It is [stepvan.ErrPeerLost] when a member died or left, [stepvan.ErrClosed] after [Node.Stop], or the error of ctx.
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
