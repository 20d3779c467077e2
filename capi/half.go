package main

// #include "boundary.h"
import "C"

import (
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// half runs the Go half of a function of stepvan.h: a panic ends here, and an error becomes a code and a text.
func half(e *cError, f func() error) (code cCode) {
	defer guard(e, &code)
	return result(e, f())
}

// onNode is half for a call on a node that has started. A panic ends the node, too.
func onNode(id cUint64, e *cError, f func(*node) error) (code cCode) {
	return onNumber(id, e, started, f)
}

// onWorker is onNode for a worker.
func onWorker(id cUint64, e *cError, f func(*node) error) cCode { return onNumber(id, e, asWorker, f) }

// onPeer is onNode for a peer.
func onPeer(id cUint64, e *cError, f func(*node) error) cCode { return onNumber(id, e, asPeer, f) }

// onHandle is onNode for a call on a handle: of a worker, of a peer, or of an operation on the board.
func onHandle(id, handle cUint64, e *cError, f func(*node) error) cCode {
	return onNode(id, e, func(n *node) error {
		if n.worker == nil && n.peer == nil && n.collective(handle) == nil {
			return invalid("this node is a %s, and only workers and peers exchange and transfer tensors", n.live.Load().Role())
		}
		return f(n)
	})
}

// onServer is onNode for a server.
func onServer(id cUint64, e *cError, f func(*node) error) cCode { return onNumber(id, e, asServer, f) }

// onNumber is onNode with the look-up to use. 0 allocations: f and find do not outlive the call.
func onNumber(id cUint64, e *cError, find func(cUint64) (*node, error), f func(*node) error) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := find(id)
	if err == nil {
		err = f(n)
	}
	return result(e, err)
}

// onMade is half for a call on something of a node that has a number of its own. A panic ends the node, too.
func onMade[T interface{ of() *node }](t *numbers.Table[T], what string, number cUint64, e *cError, f func(T) error) (code cCode) {
	made, ok := t.Get(numbers.ID(number))
	if !ok {
		return fail(e, missing(t, what, "was closed", number))
	}
	defer guardOf(made.of(), e, &code)
	return result(e, f(made))
}

// array is the caller's array for a list. count always gets the list's length.
func array[T any](p unsafe.Pointer, capacity cUint64, count *cUint64) ([]T, error) {
	switch {
	case count == nil:
		return nil, isNull("count")
	case p == nil && capacity > 0 || capacity > maxList:
		return nil, invalid("array: %d elements at %p cannot be one: give its address and its capacity", capacity, p)
	}
	return list[T](p, capacity), nil
}

// writeList writes a list to the caller's array, and its length to count.
func writeList[T any](p unsafe.Pointer, capacity cUint64, count *cUint64, get func() ([]T, error)) error {
	dst, err := array[T](p, capacity, count)
	if err != nil {
		return err
	}
	all, err := get()
	if err != nil {
		return err
	}
	copy(dst, all)
	if *count = cUint64(len(all)); *count > capacity {
		return tooSmall(len(all), capacity)
	}
	return nil
}
