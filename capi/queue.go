package main

// #include "boundary.h"
import "C"

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// queue tells an event loop which operations have ended. Its descriptor is readable while it holds tokens.
type queue struct {
	ctx   context.Context // ends with the queue
	close context.CancelFunc

	mu     sync.Mutex
	fd     int // -1 when closed
	tokens []uint64
}

// put adds a token. A closed queue drops it.
func (q *queue) put(token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd < 0 {
		return
	}
	if q.tokens = append(q.tokens, token); len(q.tokens) == 1 {
		one := [8]byte{1} // a count of the machine's order; any that is not 0 will do
		_, _ = unix.Write(q.fd, one[:])
	}
}

func (q *queue) take(dst []uint64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(dst, q.tokens)
	had := len(q.tokens) > 0
	q.tokens = q.tokens[:copy(q.tokens, q.tokens[n:])]
	if had && len(q.tokens) == 0 && q.fd >= 0 {
		var count [8]byte
		_, _ = unix.Read(q.fd, count[:])
	}
	return n
}

func (q *queue) shut() {
	q.close()
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = unix.Close(q.fd)
	q.fd, q.tokens = -1, nil
}

// noQueue is the error of a number without a queue.
func noQueue(number cUint64) error { return missing(&queues, "queue", "was closed", number) }

// goQueueOpen implements stepvan_queue_open.
//
//export goQueueOpen
func goQueueOpen(number *cUint64, fd *cInt32, e *cError) (code cCode) {
	defer guard(e, &code)
	if number == nil || fd == nil {
		return fail(e, isNull("queue and fd"))
	}
	f, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fail(e, fmt.Errorf("open an eventfd: %w", err))
	}
	ctx, end := context.WithCancel(context.Background())
	q := &queue{ctx: ctx, close: end, fd: f}
	id := queues.Put(q)
	if id == 0 {
		q.shut()
		return fail(e, tooMany("queues"))
	}
	*number, *fd = cUint64(id), cInt32(f)
	return codeOK
}

// goQueueTake implements stepvan_queue_take.
//
//export goQueueTake
func goQueueTake(number cUint64, tokens *cUint64, capacity cUint64, count *cUint64, e *cError) (code cCode) {
	defer guard(e, &code)
	q, ok := queues.Get(numbers.ID(number))
	if !ok {
		return fail(e, noQueue(number))
	}
	dst, err := array[uint64](unsafe.Pointer(tokens), capacity, count)
	if err != nil {
		return fail(e, err)
	}
	*count = cUint64(q.take(dst))
	return codeOK
}

// goQueueClose implements stepvan_queue_close.
//
//export goQueueClose
func goQueueClose(number cUint64, e *cError) (code cCode) {
	defer guard(e, &code)
	q, ok := queues.Take(numbers.ID(number))
	if !ok {
		return fail(e, noQueue(number))
	}
	q.shut()
	return codeOK
}

// goNotify implements stepvan_notify.
//
//export goNotify
func goNotify(id, handle, number, token cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asWorker(id)
	if err == nil {
		h := n.worker.Handle(uint64(handle))
		err = notify(number, token, h.Done(), h.Wait)
	}
	return result(e, err)
}

// goResponseNotify implements stepvan_response_notify.
//
//export goResponseNotify
func goResponseNotify(id, response, number, token cUint64, e *cError) (code cCode) {
	defer guardNode(id, e, &code)
	n, err := asServer(id)
	if err == nil {
		r := n.server.Response(uint64(response))
		err = notify(number, token, r.Done(), r.Wait)
	}
	return result(e, err)
}

// notify puts the token into the queue when wait returns.
func notify(number, token cUint64, done bool, wait func(context.Context) error) error {
	q, ok := queues.Get(numbers.ID(number))
	if !ok {
		return noQueue(number)
	}
	if done {
		q.put(uint64(token))
		return nil
	}
	go func() {
		defer q.put(uint64(token))
		_ = shielded("wait for a notification", func() error { return wait(q.ctx) }) // its result is for the caller of stepvan_wait
	}()
	return nil
}
