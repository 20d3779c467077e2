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

// goRespond implements stepvan_respond.
//
//export goRespond
func goRespond(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	var a answer
	if err := a.one(id, handler, tensors, count, owner); err != nil {
		return fail(e, err)
	}
	a.writeResult(response, nil)
	return codeOK
}

// goRespondCopy implements stepvan_respond_copy.
//
//export goRespondCopy
func goRespondCopy(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, borrowed *cInt32, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	a := answer{copies: true}
	err := checkCopyResults(response, borrowed)
	if err == nil {
		err = a.one(id, handler, tensors, count, owner)
	}
	if err != nil {
		return fail(e, err)
	}
	a.writeResult(response, borrowed)
	return codeOK
}

// checkCopyResults refuses a call that has nowhere to write its results.
func checkCopyResults(response *cUint64, borrowed *cInt32) error {
	if response == nil || borrowed == nil {
		return isNull("response and borrowed")
	}
	return nil
}

// answer has the options and results of a respond.
type answer struct {
	copies   bool // the tensors must be the caller's again when it returns
	response ps.Response
	borrowed bool // they are not, for lack of memory
}

// writeResult writes the result of a respond for C.
func (a *answer) writeResult(response *cUint64, borrowed *cInt32) {
	if response != nil {
		*response = cUint64(a.response.ID())
	}
	if borrowed != nil {
		*borrowed = truth(a.borrowed)
	}
}

// one answers one request.
func (a *answer) one(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64) error {
	n, err := asServer(id)
	switch {
	case err != nil:
		return err
	case count > maxTensors:
		return invalid("%d tensors; %d at most", count, maxTensors)
	case tensors == nil && count > 0:
		return isNull("tensors")
	}
	k := newCall(owner)
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
		live := n.live.Load()
		if a.copies {
			a.response, a.borrowed, err = live.RespondCopy(k.tensors, p.ID)
		} else {
			a.response, err = live.Respond(k.tensors, p.ID)
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

// goRespondVec implements stepvan_respond_vec.
//
//export goRespondVec
func goRespondVec(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	var a answer
	if err := a.several(id, t, rows, handlers, count, owner); err != nil {
		return fail(e, err)
	}
	a.writeResult(response, nil)
	return codeOK
}

// goRespondVecCopy implements stepvan_respond_vec_copy.
//
//export goRespondVecCopy
func goRespondVecCopy(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, borrowed *cInt32, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	a := answer{copies: true}
	err := checkCopyResults(response, borrowed)
	if err == nil {
		err = a.several(id, t, rows, handlers, count, owner)
	}
	if err != nil {
		return fail(e, err)
	}
	a.writeResult(response, borrowed)
	return codeOK
}

// several answers several requests with rows of one tensor.
func (a *answer) several(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64) error {
	n, err := asServer(id)
	switch {
	case err != nil:
		return err
	case t == nil || rows == nil || handlers == nil:
		return isNull("tensor, rows and handlers")
	case count == 0 || count > maxTensors:
		return invalid("%d handlers: 1 to %d", count, maxTensors)
	}
	k := newCall(owner)
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
	if live := n.live.Load(); a.copies {
		a.response, a.borrowed, err = live.RespondVecCopy(ret, k.pull, k.handlers)
	} else {
		a.response, err = live.RespondVec(ret, k.pull, k.handlers)
	}
	return err
}

// rowsOf is a tensor of so many rows without elements.
func rowsOf(count int64) (t tensor.Tensor, err error) {
	if count < 0 {
		return t, invalid("%d rows", count)
	}
	return tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(count, 0), nil)
}

// goResponseWait implements stepvan_response_wait.
//
//export goResponseWait
func goResponseWait(id, response cUint64, limit cInt64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asServer(id)
	if err == nil {
		err = n.server.Response(uint64(response)).WaitFor(duration(limit))
	}
	return result(e, err)
}

// goResponseDone implements stepvan_response_done.
//
//export goResponseDone
func goResponseDone(id, response cUint64, done *cInt32, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asServer(id)
	switch {
	case err != nil:
		return fail(e, err)
	case done == nil:
		return fail(e, isNull("done"))
	}
	*done = truth(n.server.Response(uint64(response)).Done())
	return codeOK
}
