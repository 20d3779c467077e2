package server

import (
	"fmt"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
)

// In lock-step the n-th request of every worker makes the n-th batch. A request that the server refuses would shift its
// worker's later requests by one batch. So an entry in the worker's queue stands for it, and the batch that would have
// held it fails as a whole.

// maxRefusals limits the entries of one worker. GetBatch removes them with their batches.
const maxRefusals = 4096

// queueRefusal queues an entry for the request m, which the server refuses because of why. It reports whether that may
// wake GetBatch. It returns what to tell the worker: why, or that too many were refused, which ends the session.
//
// Requests that belong to no batch leave no entry. They come from peers that are not paired, or end the session, or are
// routed ones on a server whose policy is LockStep. A server of another policy takes routed requests into batches, so
// they leave an entry there. While the server takes no batches in lock-step, no request leaves one. Under Server.mu.
func (b *batcher) queueRefusal(from *workerPeer, m *link.Inbound, why error) (wake bool, tell error) {
	outside := m.Header.Op != wire.OpRequest && b.s.opt.Policy == stepvan.LockStep
	if from == nil || !from.paired || !b.lockStep || b.s.closed || b.s.stop.over() || outside || isProtocolError(why) {
		return false, why
	}
	if from.refusals >= maxRefusals {
		return false, &stepvan.ProtocolError{Field: "request", Reason: fmt.Sprintf("%d refused requests wait for their batches, and one more was refused, because: %v", from.refusals, why)}
	}
	r := b.s.requests.take(eventRefuse)
	r.from, r.session, r.number, r.refusal = from, m.Session, m.Header.Request, why
	b.push(r)
	return b.enough(), why
}

// dropRefusals removes the entries at the heads of the queues, for a policy without lock-step. Under Server.mu.
func (b *batcher) dropRefusals() {
	for _, w := range b.s.workers {
		for w.first != nil && w.first.state == requestRefused {
			b.s.requests.recycle(b.pop(w)) // an entry holds no message
		}
	}
}

// failBatch takes the next request of every worker if one of these was refused, and tells the other workers. It returns
// the error of GetBatch; nil means that none was refused. Under Server.mu, when every worker has a request.
func (b *batcher) failBatch(later *deferredWork) error {
	var first *requestSlot
	others := 0
	for _, w := range b.s.workers {
		switch {
		case w.first.state != requestRefused:
		case first == nil:
			first = w.first
		default:
			others++
		}
	}
	if first == nil {
		return nil
	}
	reason := strings.TrimPrefix(first.refusal.Error(), stepvan.ErrInvalid.Error()+": ")
	text := reason
	if others > 0 {
		text += fmt.Sprintf("; %d more requests of this batch were refused", others)
	}
	name := first.from.name
	toOthers := fmt.Errorf("server %d: the batch of this request failed, because the server refused the request of %s: %s", b.s.rank, name, reason)
	for _, w := range b.s.workers {
		b.refuseNext(w, toOthers, later)
	}
	return &stepvan.OpError{Op: "get_batch", Peer: name, Err: fmt.Errorf(
		"%w: %s; all workers of this batch were told, and the next batch is complete again", stepvan.ErrRefused, text)}
}

// refuseNext takes the next request of w and refuses it, unless it was refused already. Under Server.mu.
func (b *batcher) refuseNext(w *workerPeer, why error, later *deferredWork) {
	r := b.pop(w)
	if r.state != requestRefused && r.session == w.session {
		b.s.messages.queueError(w, r.number, why)
		later.flush = append(later.flush, w)
	}
	later.releaseMessage(b.s.requests.recycle(r))
}
