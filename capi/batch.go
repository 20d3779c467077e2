package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// collector admits one caller of get_batch at a time, and keeps a batch that did not fit into its arrays.
type collector struct {
	mu    sync.Mutex
	batch ps.Batch
	kept  bool
}

var errNoBatch = &coded{codeTimeout, errors.New("get_batch timed out, nothing was taken: call it again")}

// goGetBatch implements
//
//	int32_t stepvan_get_batch(uint64_t node, int32_t policy, uint32_t flags, int64_t timeout_ns,
//	    stepvan_batch *batch, stepvan_error *error);
//
//export goGetBatch
func goGetBatch(id cUint64, policy cInt32, flags cUint32, limit cInt64, batch *C.stepvan_batch, e *cError) cCode {
	return onServer(id, e, func(n *node) error { return n.getBatch(ps.Policy(policy), flags, duration(limit), batch) })
}

func (n *node) getBatch(policy ps.Policy, flags cUint32, limit time.Duration, batch *cBatch) error {
	if err := checkBatch(batch, flags); err != nil {
		return err
	}
	if !n.collect.mu.TryLock() {
		return &coded{codeBusy, errors.New("another thread is in the call: collect batches from one thread")}
	}
	defer n.collect.mu.Unlock()
	if !n.collect.kept {
		err := n.live.Load().GetBatchFor(limit, policy, &n.collect.batch)
		if err != nil && codeOf(err) == codeTimeout {
			err = errNoBatch
		}
		if err != nil {
			return err
		}
	}
	err := n.writeBatch(batch, flags&flagViews != 0)
	n.collect.kept = err != nil
	return err
}

func checkBatch(b *cBatch, flags cUint32) error {
	switch {
	case b == nil:
		return isNull("batch")
	case flags&^flagViews != 0:
		return invalid("flags: some do not exist (got %#x, want 0 or STEPVAN_VIEWS)", flags)
	case b.requests == nil && b.request_capacity > 0,
		(b.push == nil || b.push_keys == nil) && b.push_capacity > 0,
		(b.pull == nil || b.pull_keys == nil) && b.pull_capacity > 0:
		return isNull("an array with a capacity")
	case max(b.request_capacity, b.push_capacity, b.pull_capacity) > maxList:
		return invalid("a capacity is too large (got %d, want at most %d)", max(b.request_capacity, b.push_capacity, b.pull_capacity), uint64(maxList))
	}
	return nil
}

// writeBatch writes the whole batch to the caller's arrays, or nothing.
func (n *node) writeBatch(b *cBatch, views bool) error {
	all := n.collect.batch.Requests
	pushes, pulls := 0, 0
	for i := range all {
		pushes += len(all[i].PushKeys())
		pulls += len(all[i].Pulls())
	}
	b.requests_count, b.push_count, b.pull_count = cUint64(len(all)), cUint64(pushes), cUint64(pulls)
	switch {
	case b.requests_count > b.request_capacity:
		return tooSmall(len(all), b.request_capacity)
	case b.push_count > b.push_capacity:
		return tooSmall(pushes, b.push_capacity)
	case b.pull_count > b.pull_capacity:
		return tooSmall(pulls, b.pull_capacity)
	}
	w := writer{
		requests: list[cRequest](unsafe.Pointer(b.requests), b.requests_count),
		push:     list[cTensor](unsafe.Pointer(b.push), b.push_count),
		pushKeys: list[uint64](unsafe.Pointer(b.push_keys), b.push_count),
		pull:     list[cTensor](unsafe.Pointer(b.pull), b.pull_count),
		pullKeys: list[uint64](unsafe.Pointer(b.pull_keys), b.pull_count),
	}
	return w.write(&n.requests, all, views)
}

// writer fills the arrays of a batch.
type writer struct {
	requests           []cRequest
	push, pull         []cTensor
	pushKeys, pullKeys []uint64
	pushed, pulled     int
}

// write gives all requests numbers or, on an error, none.
func (w *writer) write(q *requests, all []ps.Request, views bool) error {
	for i := range all {
		p := q.add(all[i])
		err := w.one(&w.requests[i], p, views)
		if err != nil {
			q.forget(w.requests[:i+1])
			return err
		}
	}
	return nil
}

func (w *writer) one(r *cRequest, p *pending, views bool) error {
	*r = cRequest{handler: cUint64(p.number), worker: cUint32(p.Worker), first_push: cUint64(w.pushed), first_pull: cUint64(w.pulled)}
	if err := w.pushes(p, views); err != nil {
		return err
	}
	r.pushes = cUint32(w.pushed) - cUint32(r.first_push)
	for _, pull := range p.Pulls() {
		c := &w.pull[w.pulled]
		*c = cTensor{bytes: cUint64(pull.Bytes), dtype: cUint8(pull.DType)}
		setShape(c, pull.Shape.Dims())
		if pull.Variable {
			c.flags = flagVariable
		}
		w.pullKeys[w.pulled] = uint64(pull.Key)
		w.pulled++
	}
	r.pulls = cUint32(w.pulled) - cUint32(r.first_pull)
	return nil
}

func (w *writer) pushOne(p *pending, i int, keys []tensor.Key, t *tensor.Tensor, flags uint16) error {
	if err := p.writeTensor(&w.push[w.pushed], t, flags); err != nil {
		return err
	}
	w.pushKeys[w.pushed] = uint64(keys[i])
	w.pushed++
	return nil
}

func (w *writer) pushes(p *pending, views bool) error {
	keys := p.PushKeys()
	if views && anyInPlace(p, keys) {
		return w.views(p, keys)
	}
	all := p.Pushes()
	for i := range all {
		if err := w.pushOne(p, i, keys, &all[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// views writes the pushes of a request of which some are the worker's own tensors. Pushes would copy these. In takes a
// lock.
func (w *writer) views(p *pending, keys []tensor.Key) error {
	for i := range keys {
		t, err := p.In(i)
		if err != nil {
			return err
		}
		var flags uint16
		if p.InPlace(i) {
			flags = flagReadOnly
		}
		if err := w.pushOne(p, i, keys, &t, flags); err != nil {
			return err
		}
	}
	return nil
}

// anyInPlace reports whether a push is the worker's own tensor.
func anyInPlace(p *pending, keys []tensor.Key) bool {
	for i := range keys {
		if p.InPlace(i) {
			return true
		}
	}
	return false
}

// goRequestIn implements
//
//	int32_t stepvan_request_in(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor,
//	    stepvan_error *error);
//
//export goRequestIn
func goRequestIn(id, handler, i cUint64, t *C.stepvan_tensor, e *cError) cCode {
	return onServer(id, e, func(n *node) error { return n.view(handler, i, t, flagReadOnly, ps.Request.In) })
}

// goRequestOut implements
//
//	int32_t stepvan_request_out(uint64_t node, uint64_t handler, uint64_t i, stepvan_tensor *tensor,
//	    stepvan_error *error);
//
//export goRequestOut
func goRequestOut(id, handler, i cUint64, t *C.stepvan_tensor, e *cError) cCode {
	return onServer(id, e, func(n *node) error { return n.view(handler, i, t, 0, ps.Request.Out) })
}

// view writes one tensor of an unanswered request.
func (n *node) view(handler, i cUint64, c *cTensor, flags uint16, get func(ps.Request, int) (tensor.Tensor, error)) error {
	switch {
	case c == nil:
		return isNull("tensor")
	case i > maxTensors:
		return invalid("request: tensor %d: no request has it (want an index below %d)", i, maxTensors)
	}
	return n.requests.visit(uint64(handler), func(p *pending) error {
		t, err := get(p.Request, int(i))
		if err != nil {
			return err
		}
		return p.writeKnown(c, &t, flags)
	})
}
