package main

// #include "boundary.h"
import "C"

import (
	"errors"
	"io"
	"sync"
	"time"
	"unsafe"

	"github.com/stepvan/stepvan/capi/internal/numbers"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// registration is registered memory of a worker or a server.
type registration struct {
	node *node
	held heldMemory // of goRegister, nil for a receive buffer

	begun  chan struct{} // of a receive buffer: closed when recv or failed is set
	recv   *ps.ReceiveBuffer
	failed error

	mu     sync.Mutex
	ending *ending // an Unregister that is under way
}

// ending is one call of Unregister.
type ending struct {
	over chan struct{}
	err  error // before over is closed
}

// goRegister implements
//
//	int32_t stepvan_register(uint64_t node, const stepvan_tensor *tensor, uint64_t owner,
//	    uint64_t *registration, stepvan_error *error);
//
//export goRegister
func goRegister(id cUint64, t *C.stepvan_tensor, owner cUint64, number *cUint64, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		if t == nil || number == nil {
			return isNull("tensor and registration")
		}
		k := newCall(owner)
		err := n.register(k, t, number)
		k.end(err == nil)
		return err
	})
}

func (n *node) register(k *call, c *cTensor, number *cUint64) error {
	var t tensor.Tensor
	if err := k.tensor(&t, c, nil); err != nil {
		return err
	}
	held, err := n.hold(t)
	if err != nil {
		return err
	}
	if err := (&registration{node: n, held: held}).number(number); err != nil {
		_ = held.Close()
		return err
	}
	return nil
}

// heldMemory is memory that the sides of a node have registered.
type heldMemory []io.Closer

// hold registers t with each side of the node. It blocks.
func (n *node) hold(t tensor.Tensor) (held heldMemory, err error) {
	if n.worker == nil && n.server == nil {
		return nil, invalid("this node is a %s, and only workers and servers have memory to register", n.live.Load().Role())
	}
	if n.worker != nil {
		r, err := n.worker.Register(t)
		if err != nil {
			return nil, err
		}
		held = append(held, r)
	}
	if n.server != nil {
		r, err := n.server.Register(t)
		if err != nil {
			return nil, errors.Join(err, held.Close())
		}
		held = append(held, r)
	}
	return held, nil
}

// Close ends the registrations. It blocks.
func (h heldMemory) Close() (err error) {
	for _, r := range h {
		err = errors.Join(err, r.Close())
	}
	return err
}

// goRegisterRecvBuffer implements
//
//	int32_t stepvan_register_recv_buffer(uint64_t node, const stepvan_tensor *tensor, uint64_t owner,
//	    const uint32_t *ranks, const uint64_t *keys, uint64_t count, int64_t timeout_ns,
//	    uint64_t *registration, stepvan_error *error);
//
//export goRegisterRecvBuffer
func goRegisterRecvBuffer(id cUint64, t *C.stepvan_tensor, owner cUint64, ranks *cUint32, keys *cUint64, count cUint64, limit cInt64, number *cUint64, e *cError) cCode {
	if number != nil {
		*number = 0
	}
	return onServer(id, e, func(n *node) error {
		return n.registerRecvBuffer(t, owner, ranks, keys, count, duration(limit), number)
	})
}

func (n *node) registerRecvBuffer(t *cTensor, owner cUint64, ranks *cUint32, keys *cUint64, count cUint64, limit time.Duration, number *cUint64) error {
	switch {
	case t == nil || ranks == nil || keys == nil || number == nil:
		return isNull("tensor, ranks, keys and registration")
	case count == 0 || count > maxChunks:
		return invalid("wrong number of chunks (got %d, want 1 to %d)", count, maxChunks)
	}
	r := &registration{node: n, begun: make(chan struct{})}
	k := newCall(owner)
	buffer := new(tensor.Tensor)
	err := k.tensor(buffer, t, nil)
	if err == nil {
		err = r.number(number)
	}
	if err != nil {
		k.end(false)
		return err
	}
	// Both outlive this call, if its limit is short.
	of, named := ranksOf(list[uint32](unsafe.Pointer(ranks), count)), append([]tensor.Key(nil), list[tensor.Key](unsafe.Pointer(keys), count)...)
	o := k.loan
	foreign.use(o) // until this call knows whether the owner was taken
	go r.begin(k, *buffer, of, named)
	err = r.wait(numbers.ID(*number), limit)
	if err == nil || codeOf(err) == codeTimeout || r.recv != nil {
		foreign.end(o, true)
	} else if foreign.endUnused(o) {
		*number = 0
	}
	return err
}

// maxChunks bounds the chunks of one registration.
const maxChunks = 1 << 24

func ranksOf(ranks []uint32) []ps.Rank {
	out := make([]ps.Rank, len(ranks))
	for i, r := range ranks {
		out[i] = ps.Rank(r)
	}
	return out
}

// noRegistration is the error of a number without a registration.
func noRegistration(number cUint64) error {
	return missing(&registrations, "registration", "was ended, or failed", number)
}

// number gives the registration a number.
func (r *registration) number(dst *cUint64) error {
	id := registrations.Put(r)
	if id == 0 {
		return tooMany("registrations")
	}
	*dst = cUint64(id)
	return nil
}

func (r *registration) begin(k *call, t tensor.Tensor, ranks []ps.Rank, keys []tensor.Key) {
	defer close(r.begun)
	defer k.end(true) // goRegisterRecvBuffer decides whether the owner was taken
	r.failed = r.node.shielded("register a receive buffer", func() (err error) {
		r.recv, err = r.node.live.Load().RegisterRecvBuffer(t, ranks, keys)
		r.recv = receiveBufferOf(r.recv, err)
		return err
	})
}

// receiveBufferOf returns the receive buffer, also if a worker does not know of it yet; nil if it failed.
func receiveBufferOf(recv *ps.ReceiveBuffer, err error) *ps.ReceiveBuffer {
	var pending *ps.PendingError
	if errors.As(err, &pending) {
		return pending.Buffer
	}
	return recv
}

// wait waits until the workers know. It ends the number of a registration that failed.
func (r *registration) wait(id numbers.ID, limit time.Duration) error {
	until := time.Now().Add(limit)
	if err := await(r.begun, limit); err != nil {
		return err
	}
	if r.recv == nil {
		registrations.Take(id)
		return r.failed
	}
	ctx, cancel := limited(left(limit, until))
	defer cancel()
	return r.recv.Wait(ctx)
}

// goRegistrationWait implements
//
//	int32_t stepvan_registration_wait(uint64_t registration, int64_t timeout_ns, stepvan_error *error);
//
//export goRegistrationWait
func goRegistrationWait(number cUint64, limit cInt64, e *cError) cCode {
	return half(e, func() error {
		r, ok := registrations.Get(numbers.ID(number))
		switch {
		case !ok:
			return noRegistration(number)
		case r.held != nil:
			return nil
		}
		return r.wait(numbers.ID(number), duration(limit))
	})
}

// goUnregister implements
//
//	int32_t stepvan_unregister(uint64_t registration, int64_t timeout_ns, stepvan_error *error);
//
//export goUnregister
func goUnregister(number cUint64, limit cInt64, e *cError) cCode {
	return half(e, func() error {
		r, ok := registrations.Get(numbers.ID(number))
		switch {
		case !ok:
			return noRegistration(number)
		case r.held == nil:
			return r.unregister(numbers.ID(number), duration(limit))
		}
		if _, ok := registrations.Take(numbers.ID(number)); !ok {
			return noRegistration(number)
		}
		return r.held.Close()
	})
}

// unregister ends a receive buffer. After the limit the work continues, and the next call waits for it.
func (r *registration) unregister(id numbers.ID, limit time.Duration) error {
	if err := await(r.begun, limit); err != nil {
		return err
	}
	for until := time.Now().Add(limit); ; limit = left(limit, until) {
		err := r.attempt(limit)
		switch {
		case err == nil:
			registrations.Take(id)
			return nil
		case errors.Is(err, errTimeout), codeOf(err) != codeTimeout, limit == 0:
			return err
		}
	}
}

// left is the rest of a limit.
func left(limit time.Duration, until time.Time) time.Duration {
	if limit < 0 {
		return limit
	}
	return max(0, time.Until(until))
}

// attempt waits for the Unregister that is under way, or begins one.
func (r *registration) attempt(limit time.Duration) error {
	if r.recv == nil {
		return nil // it failed
	}
	r.mu.Lock()
	e := r.ending
	if e == nil {
		e = &ending{over: make(chan struct{})}
		r.ending = e
		go func() {
			defer close(e.over)
			e.err = r.node.shielded("unregister a receive buffer", r.recv.Unregister)
		}()
	}
	r.mu.Unlock()
	if err := await(e.over, limit); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending == e && e.err != nil {
		r.ending = nil // the next call tries again
	}
	return e.err
}
