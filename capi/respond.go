package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

//export goRespond
func goRespond(id, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, e *cError) (code cCode) {
	defer guard(e, &code)
	n, err := asServer(id)
	switch {
	case err != nil:
		return fail(e, err)
	case count > maxTensors:
		return fail(e, invalid("%d tensors; %d at most", count, maxTensors))
	case tensors == nil && count > 0:
		return fail(e, isNull("tensors"))
	}
	k := newCall(owner)
	r, err := n.respond(k, uint64(handler), list[cTensor](unsafe.Pointer(tensors), count))
	k.end(err == nil)
	return answered(r, err, response, e)
}

// answered tells C how a respond went.
func answered(r ps.Response, err error, response *cUint64, e *cError) cCode {
	if err != nil {
		return fail(e, err)
	}
	if response != nil {
		*response = cUint64(r.ID())
	}
	return codeOK
}

func (n *node) respond(k *call, handler uint64, tensors []cTensor) (r ps.Response, err error) {
	one := [1]uint64{handler}
	if k.pending, err = n.requests.claim(one[:], k.pending); err != nil {
		return r, err
	}
	p := k.pending[0]
	if k.tensors, err = k.add(k.tensors, tensors, p.known); err == nil {
		r, err = n.live.Load().Respond(k.tensors, p.Handler)
	}
	n.settle(k, err)
	return r, err
}

// settle frees what was answered, or can be no more.
func (n *node) settle(k *call, err error) {
	over := err == nil || errors.Is(err, ps.ErrClosed) && k.pending[0].ended()
	n.requests.settle(k.pending, over)
}

//export goRespondVec
func goRespondVec(id cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, e *cError) (code cCode) {
	defer guard(e, &code)
	n, err := asServer(id)
	switch {
	case err != nil:
		return fail(e, err)
	case t == nil || rows == nil || handlers == nil:
		return fail(e, isNull("tensor, rows and handlers"))
	case count == 0 || count > maxTensors:
		return fail(e, invalid("%d handlers: 1 to %d", count, maxTensors))
	}
	k := newCall(owner)
	r, err := n.respondVec(k, t, list[int64](unsafe.Pointer(rows), count), list[uint64](unsafe.Pointer(handlers), count))
	k.end(err == nil)
	return answered(r, err, response, e)
}

func (n *node) respondVec(k *call, c *cTensor, rows []int64, handlers []uint64) (r ps.Response, err error) {
	if k.pending, err = n.requests.claim(handlers, k.pending); err != nil {
		return r, err
	}
	defer func() { n.settle(k, err) }()
	for _, count := range rows {
		like, err := rowsOf(count)
		if err != nil {
			return r, err
		}
		k.pull = append(k.pull, like)
	}
	for _, p := range k.pending {
		k.handlers = append(k.handlers, p.Handler)
		k.known = append(k.known, p.known...)
	}
	var ret tensor.Tensor
	if err = k.tensor(&ret, c, k.known); err == nil {
		r, err = n.live.Load().RespondVec(ret, k.pull, k.handlers)
	}
	return r, err
}

// rowsOf is a tensor without elements of so many rows.
func rowsOf(count int64) (t tensor.Tensor, err error) {
	if count < 0 {
		return t, invalid("%d rows", count)
	}
	return tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(count, 0), nil)
}

//export goResponseWait
func goResponseWait(id, response cUint64, limit cInt64, e *cError) (code cCode) {
	defer guard(e, &code)
	n, err := asServer(id)
	if err == nil {
		err = n.server.Response(uint64(response)).WaitFor(duration(limit))
	}
	return result(e, err)
}

//export goResponseDone
func goResponseDone(id, response cUint64, done *cInt32, e *cError) (code cCode) {
	defer guard(e, &code)
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
