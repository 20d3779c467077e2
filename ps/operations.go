package ps

import (
	"context"
	"errors"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// PushPull sends every push tensor to the servers and has them write the pull tensors, with
// the routing of the settings; with broadcast the pull tensors are server-major. It never
// blocks: the handle tells the end, until which the tensors are borrowed; after a failure, until no
// server reaches them (package worker has the rule, and Do holds it). Errors are those
// of worker.Worker.Do. 0 allocations.
func (n *Node) PushPull(push []tensor.Tensor, pushKeys []tensor.Key, pull []tensor.Tensor, pullKeys []tensor.Key) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.PushPull(push, pushKeys, pull, pullKeys)
	return h, n.preferPanic("push_pull", err)
}

// Do is PushPull with everything that can be said of an exchange: named servers, pulls of
// variable length, a label for traces. The exchange is read during the call only.
func (n *Node) Do(x *Exchange) (Handle, error) {
	w, err := n.asWorker("push_pull")
	if err != nil {
		return Handle{}, err
	}
	h, err := w.Do(x)
	return h, n.preferPanic("push_pull", err)
}

// GetBatch waits for requests of the paired workers, by the policy. Being idle is no
// error. It ends with ErrClosed when every paired worker has stopped. Errors are those of
// server.Server.GetBatch.
func (n *Node) GetBatch(ctx context.Context, p Policy) (Batch, error) {
	var b Batch
	err := n.GetBatchInto(ctx, p, &b)
	return b, err
}

// GetBatchInto is GetBatch into a batch whose memory is used again. 0 allocations in the
// steady state.
func (n *Node) GetBatchInto(ctx context.Context, p Policy, b *Batch) error {
	s, err := n.asBatchServer(p)
	if err != nil {
		return err
	}
	return n.preferCause("get_batch", s.GetBatchInto(ctx, p, b))
}

// GetBatchFor is GetBatchInto with a limit of time in place of a context; negative means for ever.
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
		return nil, errs.Invalid("get_batch in lock-step needs every worker to push to every server: set STEPVAN_ROUTING=broadcast, or take ps.AnyReady or ps.AtLeast")
	}
	return s, err
}

// Respond answers the pulls of one request of a batch, in their order, once. It returns
// at once: the tensors are borrowed until the Response is done, and a worker gets other numbers when they are changed
// before (STEPVAN_CHECK_BORROWED=1 finds that). RespondCopy gives them back. Errors, with which nothing
// has been sent, are those of server.Server.Respond. A request that was not answered before Stop holds
// its memory until it is responded to, which is then refused with ErrClosed. 0 allocations.
func (n *Node) Respond(tensors []tensor.Tensor, h RequestID) (Response, error) {
	s, err := n.asServer("respond")
	if err != nil {
		n.releaseUnanswered(h)
		return Response{}, err
	}
	r, err := s.Respond(tensors, h)
	return r, n.preferPanic("respond", err)
}

// RespondVec cuts ret along dimension 0 into consecutive slices, slice i as long as like[i],
// and answers handlers[i] with it: all of them or, on an error, none.
func (n *Node) RespondVec(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (Response, error) {
	s, err := n.asServer("respond_vec")
	if err != nil {
		n.releaseUnanswered(handlers...)
		return Response{}, err
	}
	r, err := s.RespondVec(ret, like, handlers)
	return r, n.preferPanic("respond_vec", err)
}

// RespondCopy is Respond for a program that uses its tensors again at once: they are the caller's again when it returns,
// unless borrowed is true, when memory was short: then when the Response is done. See server.Server.RespondCopy. 0 allocations.
func (n *Node) RespondCopy(tensors []tensor.Tensor, h RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asServer("respond")
	if err != nil {
		n.releaseUnanswered(h)
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondCopy(tensors, h)
	return r, borrowed, n.preferPanic("respond", err)
}

// RespondVecCopy is RespondVec with what RespondCopy says of the tensor.
func (n *Node) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (r Response, borrowed bool, err error) {
	s, err := n.asServer("respond_vec")
	if err != nil {
		n.releaseUnanswered(handlers...)
		return Response{}, false, err
	}
	r, borrowed, err = s.RespondVecCopy(ret, like, handlers)
	return r, borrowed, n.preferPanic("respond_vec", err)
}

// RegisterRecvBuffer cuts t's bytes evenly over the lists: chunk i receives in place what
// worker ranks[i] pushes with keys[i]. It waits until the workers know, for ten seconds at most: then the buffer is
// registered all the same, and the error is a *PendingError, whose Registration goes on waiting. Other errors
// are those of server.Server.RegisterRecvBuffer.
func (n *Node) RegisterRecvBuffer(t tensor.Tensor, ranks []Rank, keys []tensor.Key) (*ReceiveBuffer, error) {
	s, err := n.asServer("register_recv_buffer")
	if err != nil {
		return nil, err
	}
	reg, err := s.RegisterRecvBuffer(t, ranks, keys)
	return reg, n.preferCause("register_recv_buffer", err)
}

// Barrier waits until every member of the group has called it: every instance or, when not
// perInstance, one instance of every node. A joint node enters for each of its roles that
// is in the group. It waits as long as the members live, or until ctx ends; then the next
// Barrier over the same group continues this one.
func (n *Node) Barrier(ctx context.Context, group Group, perInstance bool) error {
	if err := n.life.usable("barrier"); err != nil {
		return err
	}
	var tasks []func(context.Context) error
	for _, m := range n.members {
		switch {
		case m.scheduler != nil:
			return m.scheduler.Barrier(ctx, group, perInstance)
		case len(n.members) == 1 || group.Has(m.office.Self().Role):
			tasks = append(tasks, func(ctx context.Context) error { return m.office.Barrier(ctx, group, perInstance) })
		}
	}
	if len(tasks) == 0 { // its role is not in the group, as the office says
		return n.members[0].office.Barrier(ctx, group, perInstance)
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
	return nil, errs.Invalid("%s is for workers, and this node is a %s: call it where DMLC_ROLE is worker or joint", op, n.Role())
}

func (n *Node) asServer(op string) (*Server, error) {
	s := n.Server()
	switch {
	case s == nil:
		if err := n.life.usable(op); err != nil {
			return nil, err
		}
		return nil, errs.Invalid("%s is for servers, and this node is a %s: call it where DMLC_ROLE is server or joint", op, n.Role())
	case !n.life.serving():
		return nil, stoppedError(op)
	}
	return s, n.life.failure(op)
}

// releaseUnanswered has a server that was stopped give back the memory of requests that it can answer no more.
func (n *Node) releaseUnanswered(requests ...RequestID) {
	s := n.Server()
	if s == nil || n.life.serving() {
		return
	}
	for _, h := range requests {
		_, _ = s.Respond(nil, h) // always refused; the caller has its error
	}
}

// preferPanic replaces err, which may only follow from the node's end, by the panic that has ended it.
func (n *Node) preferPanic(op string, err error) error {
	if err != nil && n.life.broken.Load() != nil {
		return n.life.failure(op)
	}
	return err
}

// preferCause replaces err by the panic that has ended the node. If err is the loss of a peer, it waits for the
// scheduler to say which loss came first, and replaces err by that one where it has ended the cluster.
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
