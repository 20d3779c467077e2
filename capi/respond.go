package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// goRespond implements
//
//	int32_t stepvan_respond(uint64_t node, uint64_t handler, const stepvan_tensor *tensors, uint64_t count,
//	    uint64_t owner, uint64_t *response, stepvan_error *error);
//
//export goRespond
func goRespond(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondOne(&answer{response: response}, handler, tensors, count, owner)
	})
}

// goRespondCopy implements
//
//	int32_t stepvan_respond_copy(uint64_t node, uint64_t handler, const stepvan_tensor *tensors,
//	    uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed, stepvan_error *error);
//
//export goRespondCopy
func goRespondCopy(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, borrowed *cInt32, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondOne(&answer{copies: true, response: response, borrowed: borrowed}, handler, tensors, count, owner)
	})
}

// answer is one respond.
type answer struct {
	copies   bool // the tensors must be the caller's again when it returns
	stream   ps.Stream
	response *cUint64 // to write the result to; nil where C does not want it
	borrowed *cInt32  // to write to whether they are not, for lack of memory
}

// check refuses a copying respond that has nowhere to write its results.
func (a *answer) check() error {
	if a.copies && (a.response == nil || a.borrowed == nil) {
		return isNull("response and borrowed")
	}
	return nil
}

// write writes the result of a respond for C.
func (a *answer) write(r ps.Response, borrowed bool) {
	if a.response != nil {
		*a.response = cUint64(r.ID())
	}
	if a.borrowed != nil {
		*a.borrowed = truth(borrowed)
	}
}

// respondOne answers one request.
func (n *node) respondOne(a *answer, handler cUint64, tensors *cTensor, count, owner cUint64) error {
	err := a.check()
	switch {
	case err != nil:
		return err
	case count > maxTensors:
		return invalid("too many tensors (got %d, want at most %d)", count, maxTensors)
	case tensors == nil && count > 0:
		return isNull("tensors")
	}
	k := newCall(owner)
	k.storages = n.live.Load().Storages()
	err = n.respond(k, a, uint64(handler), list[cTensor](unsafe.Pointer(tensors), count))
	k.end(err == nil)
	return err
}

func (n *node) respond(k *call, a *answer, handler uint64, tensors []cTensor) (err error) {
	one := [1]uint64{handler}
	if k.pending, err = n.requests.claim(one[:], k.pending); err != nil {
		return err
	}
	p := k.pending[0]
	if k.tensors, err = k.add(k.tensors, tensors, p.known); err == nil {
		var r ps.Response
		var borrowed bool
		live := n.live.Load()
		if a.copies {
			r, borrowed, err = live.RespondCopy(k.tensors, p.ID)
		} else {
			r, err = live.RespondOn(a.stream, k.tensors, p.ID)
		}
		if err == nil {
			a.write(r, borrowed)
		}
	}
	n.settle(k, err)
	return err
}

// settle frees requests that were answered, or cannot be any more.
func (n *node) settle(k *call, err error) {
	over := err == nil || (errors.Is(err, stepvan.ErrClosed) || errors.Is(err, stepvan.ErrStale)) && k.pending[0].ended()
	n.requests.settle(k.pending, over)
}

// goRespondVec implements
//
//	int32_t stepvan_respond_vec(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows,
//	    const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);
//
//export goRespondVec
func goRespondVec(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondSeveral(&answer{response: response}, t, rows, handlers, count, owner)
	})
}

// goRespondVecCopy implements
//
//	int32_t stepvan_respond_vec_copy(uint64_t node, const stepvan_tensor *tensor, const int64_t *rows,
//	    const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response, int32_t *borrowed,
//	    stepvan_error *error);
//
//export goRespondVecCopy
func goRespondVecCopy(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, borrowed *cInt32, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondSeveral(&answer{copies: true, response: response, borrowed: borrowed}, t, rows, handlers, count, owner)
	})
}

// respondSeveral answers several requests with rows of one tensor.
func (n *node) respondSeveral(a *answer, t *cTensor, rows *cInt64, handlers *cUint64, count, owner cUint64) error {
	err := a.check()
	switch {
	case err != nil:
		return err
	case t == nil || rows == nil || handlers == nil:
		return isNull("tensor, rows and handlers")
	case count == 0 || count > maxTensors:
		return invalid("wrong number of handlers (got %d, want 1 to %d)", count, maxTensors)
	}
	k := newCall(owner)
	k.storages = n.live.Load().Storages()
	err = n.respondVec(k, a, t, list[int64](unsafe.Pointer(rows), count), list[uint64](unsafe.Pointer(handlers), count))
	k.end(err == nil)
	return err
}

func (n *node) respondVec(k *call, a *answer, c *cTensor, rows []int64, handlers []uint64) (err error) {
	if k.pending, err = n.requests.claim(handlers, k.pending); err != nil {
		return err
	}
	defer func() { n.settle(k, err) }()
	for _, count := range rows {
		like, err := rowsOf(count)
		if err != nil {
			return err
		}
		k.pull = append(k.pull, like)
	}
	for _, p := range k.pending {
		k.handlers = append(k.handlers, p.ID)
		k.known = append(k.known, p.known...)
	}
	var ret tensor.Tensor
	if err := k.tensor(&ret, c, k.known); err != nil {
		return err
	}
	var r ps.Response
	var borrowed bool
	if live := n.live.Load(); a.copies {
		r, borrowed, err = live.RespondVecCopy(ret, k.pull, k.handlers)
	} else {
		r, err = live.RespondVecOn(a.stream, ret, k.pull, k.handlers)
	}
	if err == nil {
		a.write(r, borrowed)
	}
	return err
}

// rowsOf is a tensor of so many rows without elements.
func rowsOf(count int64) (t tensor.Tensor, err error) {
	if count < 0 {
		return t, invalid("a number of rows is negative (got %d)", count)
	}
	return tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(count, 0), nil)
}

// goResponseWait implements
//
//	int32_t stepvan_response_wait(uint64_t node, uint64_t response, int64_t timeout_ns,
//	    stepvan_error *error);
//
//export goResponseWait
func goResponseWait(id, response cUint64, limit cInt64, e *cError) cCode {
	return onServer(id, e, func(n *node) error { return n.server.Response(uint64(response)).WaitFor(duration(limit)) })
}

// goResponseDone implements
//
//	int32_t stepvan_response_done(uint64_t node, uint64_t response, int32_t *done, stepvan_error *error);
//
//export goResponseDone
func goResponseDone(id, response cUint64, done *cInt32, e *cError) cCode {
	return onServer(id, e, func(n *node) error { return writeTruth(done, n.server.Response(uint64(response)).Done) })
}
