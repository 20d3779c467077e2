package main

// #include "boundary.h"
import "C"

import (
	"context"

	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// streamOf is a stream of C. The tensors of the call say which device it belongs to.
func streamOf(handle cUint64) ps.Stream { return ps.Stream{Handle: uintptr(handle)} }

// goPushPullOn implements
//
//	int32_t stepvan_push_pull_on(uint64_t node, uint64_t stream, const stepvan_exchange *exchange,
//	    uint64_t *handle, stepvan_error *error);
//
//export goPushPullOn
func goPushPullOn(id, stream cUint64, x *C.stepvan_exchange, handle *cUint64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error { return n.pushPull(x, stream, handle) })
}

// goRespondOn implements
//
//	int32_t stepvan_respond_on(uint64_t node, uint64_t stream, uint64_t handler, const stepvan_tensor *tensors,
//	    uint64_t count, uint64_t owner, uint64_t *response, stepvan_error *error);
//
//export goRespondOn
func goRespondOn(id, stream, handler cUint64, tensors *C.stepvan_tensor, count, owner cUint64, response *cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondOne(&answer{stream: streamOf(stream), response: response}, handler, tensors, count, owner)
	})
}

// goRespondVecOn implements
//
//	int32_t stepvan_respond_vec_on(uint64_t node, uint64_t stream, const stepvan_tensor *tensor,
//	    const int64_t *rows, const uint64_t *handlers, uint64_t count, uint64_t owner, uint64_t *response,
//	    stepvan_error *error);
//
//export goRespondVecOn
func goRespondVecOn(id, stream cUint64, t *C.stepvan_tensor, rows *cInt64, handlers *cUint64, count, owner cUint64, response *cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		return n.respondSeveral(&answer{stream: streamOf(stream), response: response}, t, rows, handlers, count, owner)
	})
}

// goWaitOn implements
//
//	int32_t stepvan_wait_on(uint64_t node, uint64_t handle, uint32_t device_kind, uint32_t device,
//	    uint64_t stream, int64_t timeout_ns, stepvan_error *error);
//
//export goWaitOn
func goWaitOn(id, handle cUint64, kind, number cUint32, stream cUint64, limit cInt64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error {
		at := tensor.Device{Kind: tensor.DeviceKind(kind), ID: int32(number)}
		ctx, cancel := context.Background(), func() {}
		if limit >= 0 {
			ctx, cancel = context.WithTimeout(ctx, duration(limit))
		}
		defer cancel()
		return n.worker.Handle(uint64(handle)).WaitOn(ctx, ps.Stream{Device: at, Handle: uintptr(stream)})
	})
}
