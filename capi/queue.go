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

// goQueueOpen implements
//
//	int32_t stepvan_queue_open(uint64_t *queue, int32_t *fd, stepvan_error *error);
//
//export goQueueOpen
func goQueueOpen(number *cUint64, fd *cInt32, e *cError) cCode {
	return half(e, func() error {
		if number == nil || fd == nil {
			return isNull("queue and fd")
		}
		f, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("open an eventfd: %w", err)
		}
		ctx, end := context.WithCancel(context.Background())
		q := &queue{ctx: ctx, close: end, fd: f}
		id := queues.Put(q)
		if id == 0 {
			q.shut()
			return tooMany("queues")
		}
		*number, *fd = cUint64(id), cInt32(f)
		return nil
	})
}

// goQueueTake implements
//
//	int32_t stepvan_queue_take(uint64_t queue, uint64_t *tokens, uint64_t capacity, uint64_t *count,
//	    stepvan_error *error);
//
//export goQueueTake
func goQueueTake(number cUint64, tokens *cUint64, capacity cUint64, count *cUint64, e *cError) cCode {
	return half(e, func() error {
		q, ok := queues.Get(numbers.ID(number))
		if !ok {
			return noQueue(number)
		}
		dst, err := array[uint64](unsafe.Pointer(tokens), capacity, count)
		if err == nil {
			*count = cUint64(q.take(dst))
		}
		return err
	})
}

// goQueueClose implements
//
//	int32_t stepvan_queue_close(uint64_t queue, stepvan_error *error);
//
//export goQueueClose
func goQueueClose(number cUint64, e *cError) cCode {
	return half(e, func() error {
		q, ok := queues.Take(numbers.ID(number))
		if !ok {
			return noQueue(number)
		}
		q.shut()
		return nil
	})
}

// goNotify implements
//
//	int32_t stepvan_notify(uint64_t node, uint64_t handle, uint64_t queue, uint64_t token,
//	    stepvan_error *error);
//
//export goNotify
func goNotify(id, handle, number, token cUint64, e *cError) cCode {
	return onHandle(id, handle, e, func(n *node) error {
		return notify(number, token, n.done(handle), func(ctx context.Context) error { return n.wait(ctx, handle) })
	})
}

// goResponseNotify implements
//
//	int32_t stepvan_response_notify(uint64_t node, uint64_t response, uint64_t queue, uint64_t token,
//	    stepvan_error *error);
//
//export goResponseNotify
func goResponseNotify(id, response, number, token cUint64, e *cError) cCode {
	return onServer(id, e, func(n *node) error {
		r := n.server.Response(uint64(response))
		return notify(number, token, r.Done(), r.Wait)
	})
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
