package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/ps"
)

// goWait implements stepvan_wait.
//
//export goWait
func goWait(id, handle cUint64, limit cInt64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	if err == nil {
		err = n.worker.Handle(uint64(handle)).WaitFor(duration(limit))
	}
	return result(e, err)
}

// goDone implements stepvan_done.
//
//export goDone
func goDone(id, handle cUint64, done *cInt32, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	switch {
	case err != nil:
		return fail(e, err)
	case done == nil:
		return fail(e, isNull("done"))
	}
	*done = truth(n.worker.Handle(uint64(handle)).Done())
	return codeOK
}

func truth(b bool) cInt32 {
	if b {
		return 1
	}
	return 0
}

// goOperations implements stepvan_operations.
//
//export goOperations
func goOperations(id, handle cUint64, count *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	switch {
	case err != nil:
		return fail(e, err)
	case count == nil:
		return fail(e, isNull("count"))
	}
	all, err := n.worker.Handle(uint64(handle)).Handles()
	if err != nil {
		return fail(e, err)
	}
	*count = cUint64(len(all))
	return codeOK
}

// goTrace implements stepvan_trace.
//
//export goTrace
func goTrace(id, handle cUint64, stamps *cInt64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	switch {
	case err != nil:
		return fail(e, err)
	case stamps == nil:
		return fail(e, isNull("stamps"))
	}
	s, err := n.worker.Handle(uint64(handle)).Trace()
	if err != nil {
		return fail(e, err)
	}
	copy(list[int64](unsafe.Pointer(stamps), stampCount), s[:])
	return codeOK
}

// goTraces implements stepvan_traces.
//
//export goTraces
func goTraces(id, handle cUint64, stamps *cInt64, capacity cUint64, count *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	if err != nil {
		return fail(e, err)
	}
	dst, err := array[ps.Stamps](unsafe.Pointer(stamps), capacity, count)
	if err != nil {
		return fail(e, err)
	}
	all, err := n.worker.Handle(uint64(handle)).Traces()
	if err != nil {
		return fail(e, err)
	}
	copy(dst, all)
	return result(e, fits(len(all), capacity, count))
}

// goLengths implements stepvan_lengths.
//
//export goLengths
func goLengths(id, handle cUint64, lengths *cInt64, capacity cUint64, count *cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	if err != nil {
		return fail(e, err)
	}
	dst, err := array[int64](unsafe.Pointer(lengths), capacity, count)
	if err != nil {
		return fail(e, err)
	}
	all, err := n.worker.Handle(uint64(handle)).Lengths()
	if err != nil {
		return fail(e, err)
	}
	copy(dst, all)
	return result(e, fits(len(all), capacity, count))
}
