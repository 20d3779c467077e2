package main

// #include "boundary.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// goWait implements
//
//	int32_t stepvan_wait(uint64_t node, uint64_t handle, int64_t timeout_ns, stepvan_error *error);
//
//export goWait
func goWait(id, handle cUint64, limit cInt64, e *cError) cCode {
	return onHandle(id, handle, e, func(n *node) error { return n.waitFor(handle, duration(limit)) })
}

// waitFor waits for a handle.
func (n *node) waitFor(handle cUint64, limit time.Duration) error {
	if c := n.collective(handle); c != nil {
		return c.waitFor(limit)
	}
	if n.worker != nil {
		return n.worker.Handle(uint64(handle)).WaitFor(limit)
	}
	return n.peer.Handle(uint64(handle)).WaitFor(limit)
}

// done reports whether waitFor would return at once.
func (n *node) done(handle cUint64) bool {
	if c := n.collective(handle); c != nil {
		return c.done()
	}
	if n.worker != nil {
		return n.worker.Handle(uint64(handle)).Done()
	}
	return n.peer.Handle(uint64(handle)).Done()
}

// wait is waitFor with a context.
func (n *node) wait(ctx context.Context, handle cUint64) error {
	if c := n.collective(handle); c != nil {
		return c.wait(ctx)
	}
	if n.worker != nil {
		return n.worker.Handle(uint64(handle)).Wait(ctx)
	}
	return n.peer.Handle(uint64(handle)).Wait(ctx)
}

// goDone implements
//
//	int32_t stepvan_done(uint64_t node, uint64_t handle, int32_t *done, stepvan_error *error);
//
//export goDone
func goDone(id, handle cUint64, done *cInt32, e *cError) cCode {
	return onHandle(id, handle, e, func(n *node) error { return writeTruth(done, func() bool { return n.done(handle) }) })
}

func truth(b bool) cInt32 {
	if b {
		return 1
	}
	return 0
}

// writeTruth writes what done reports.
func writeTruth(dst *cInt32, done func() bool) error {
	if dst == nil {
		return isNull("done")
	}
	*dst = truth(done())
	return nil
}

// goOperations implements
//
//	int32_t stepvan_operations(uint64_t node, uint64_t handle, uint64_t *count, stepvan_error *error);
//
//export goOperations
func goOperations(id, handle cUint64, count *cUint64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error {
		if count == nil {
			return isNull("count")
		}
		all, err := n.worker.Handle(uint64(handle)).Handles()
		if err == nil {
			*count = cUint64(len(all))
		}
		return err
	})
}

// goTrace implements
//
//	int32_t stepvan_trace(uint64_t node, uint64_t handle, int64_t *stamps, stepvan_error *error);
//
//export goTrace
func goTrace(id, handle cUint64, stamps *cInt64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error {
		if stamps == nil {
			return isNull("stamps")
		}
		s, err := n.worker.Handle(uint64(handle)).Trace()
		if err == nil {
			copy(list[int64](unsafe.Pointer(stamps), stampCount), s[:])
		}
		return err
	})
}

// goTraces implements
//
//	int32_t stepvan_traces(uint64_t node, uint64_t handle, int64_t *stamps, uint64_t capacity,
//	    uint64_t *count, stepvan_error *error);
//
//export goTraces
func goTraces(id, handle cUint64, stamps *cInt64, capacity cUint64, count *cUint64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error {
		return writeList(unsafe.Pointer(stamps), capacity, count, n.worker.Handle(uint64(handle)).Traces)
	})
}

// goLengths implements
//
//	int32_t stepvan_lengths(uint64_t node, uint64_t handle, int64_t *lengths, uint64_t capacity,
//	    uint64_t *count, stepvan_error *error);
//
//export goLengths
func goLengths(id, handle cUint64, lengths *cInt64, capacity cUint64, count *cUint64, e *cError) cCode {
	return onWorker(id, e, func(n *node) error {
		return writeList(unsafe.Pointer(lengths), capacity, count, n.worker.Handle(uint64(handle)).Lengths)
	})
}
