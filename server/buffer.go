package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/registry"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// ReceiveBuffer is memory that receives pushes. Any goroutine may call its methods.
type ReceiveBuffer struct {
	s          *Server
	tensor     tensor.Tensor // of the host
	mirror     *mirror       // where the program has given memory of an accelerator; nil otherwise
	generation uint32
	chunks     []*chunk
	held       *registry.Registration

	// Guarded by Server.mu.
	live    int             // chunks that receive
	ended   bool            // by Unregister
	changes []*bufferChange // that the workers have not confirmed
}

// PendingError is the error of RegisterRecvBuffer when a worker takes longer than Options.Patience: to acknowledge the
// registration, or to release what the registration replaces. The buffer is registered all the same. It receives
// pushes, and belongs to the server until [ReceiveBuffer.Unregister]. Workers may still write to what was replaced, and
// its region cannot be closed, until [ReceiveBuffer.Wait] has returned nil:
//
//	b, err := s.RegisterRecvBuffer(buffer, ranks, keys)
//	var pending *server.PendingError
//	if errors.As(err, &pending) {
//		b = pending.Buffer
//		err = b.Wait(ctx)
//	}
//
// A program that gives up instead ends the registration with Unregister, or with the server.
type PendingError struct {
	Buffer *ReceiveBuffer
	Err    error // names a worker that is missing, and wraps context.DeadlineExceeded
}

// Error names the worker that is missing.
func (e *PendingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Err }

// Tensor returns the registered tensor.
func (b *ReceiveBuffer) Tensor() tensor.Tensor {
	if b.mirror != nil {
		return b.mirror.accelerator
	}
	return b.tensor
}

// Generation returns the number of the registration, which rises with each change of the server's buffers.
func (b *ReceiveBuffer) Generation() uint32 { return b.generation }

// Live reports whether the buffer still receives pushes. It does not after Unregister, or when later registrations have
// replaced all of it.
func (b *ReceiveBuffer) Live() bool {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.live > 0
}

// RegisterRecvBuffer cuts t's bytes evenly over the lists: chunk i receives what worker ranks[i] pushes with keys[i],
// in place, from the time that this returns. GetBatch hands out views of the chunks. The registration retains t's
// memory until Unregister, or until later registrations have replaced all its chunks.
//
// A second registration of a (rank, key) replaces its chunk. Errors after which nothing has changed:
//
//   - stepvan.ErrInvalid: the lists differ in length, the bytes do not divide, or a rank is not paired. Or a chunk does
//     not begin at a multiple of t's element alignment, or another live buffer has some of the memory;
//   - stepvan.ErrBusy: a request on a chunk to be replaced is unanswered;
//   - stepvan.ErrClosed.
//
// RegisterRecvBuffer waits until each worker that lives has acknowledged the buffer, so that its later pushes arrive in
// place. It also waits until each worker has released the chunks that are replaced, or is dead. A push that was
// prepared before goes to pooled memory. After Options.Patience the error is a [*PendingError]: the buffer is
// registered, and [ReceiveBuffer.Wait] of PendingError.Buffer continues the wait.
func (s *Server) RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (*ReceiveBuffer, error) {
	const op = "register_recv_buffer"
	if err := checkBuffer(&t, len(ranks), len(keys)); err != nil {
		return nil, err
	}
	b := &ReceiveBuffer{s: s, tensor: t}
	err := b.makeMirror()
	if err == nil {
		if b.held, err = s.transport.Registry.Register(b.tensor); err != nil {
			_ = b.closeHeld()
			b.mirror.end()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register_recv_buffer: %w", err)
	}
	s.mu.Lock()
	err = s.buffers.register(b, ranks, keys)
	s.mu.Unlock()
	if err != nil {
		_ = b.closeHeld() // nothing was announced
		b.mirror.end()
		return nil, err
	}
	err = b.awaitPatiently(op)
	switch {
	case errors.Is(err, stepvan.ErrClosed):
		return nil, err
	case err != nil:
		return nil, &PendingError{Buffer: b, Err: err}
	}
	return b, nil
}

// Unregister ends the registration: later pushes go to pooled memory. When it returns nil, the buffer is the program's
// again. Before that it waits until each worker that lives has acknowledged. It also waits until each worker that
// writes into the buffer by itself has released it or is dead.
//
// stepvan.ErrBusy means that a request on one of its chunks is unanswered; then nothing has changed. An error that
// wraps context.DeadlineExceeded names a worker that took longer than Options.Patience. Then the registration has
// ended, but the buffer is not the program's yet, and its region cannot be closed while a worker reaches it.
// [ReceiveBuffer.Wait], or another Unregister, continues the wait. Unregister may be called again, also for a buffer
// that others have replaced.
func (b *ReceiveBuffer) Unregister() error {
	b.s.mu.Lock()
	err := b.end()
	b.s.mu.Unlock()
	if err != nil {
		return err
	}
	return b.awaitPatiently("unregister")
}

// Wait drives the transport until each worker that lives has acknowledged the registration, and has released the chunks
// that it replaces. After Unregister it waits until the buffer is the program's again. The death of a worker ends the
// wait for it. The error wraps ctx.Err() and names a worker that is missing when ctx ends first; then Wait can be
// called again. It is stepvan.ErrClosed when the transport was closed.
func (b *ReceiveBuffer) Wait(ctx context.Context) error {
	return b.await(ctx, "wait for a registration")
}

// awaitPatiently is await where the program has set no limit.
func (b *ReceiveBuffer) awaitPatiently(op string) error {
	defer b.s.buffers.deregisterEnded()
	ctx, cancel := context.WithTimeout(context.Background(), b.s.opt.Patience)
	defer cancel()
	return b.await(ctx, op)
}

// end makes the chunks receive no more. After an error nothing has changed. Under Server.mu.
func (b *ReceiveBuffer) end() error {
	if b.ended {
		return nil
	}
	var ended []*chunk
	for _, c := range b.chunks {
		if !c.registered() {
			continue
		}
		if c.user != nil {
			return c.errBusy("unregister")
		}
		ended = append(ended, c)
	}
	change := new(bufferChange)
	t := &b.s.buffers
	if len(ended) > 0 {
		change = t.unregister(ended)
	}
	t.awaitWithdrawn(change, b.chunks)
	b.ended, b.changes = true, append(b.changes, change)
	return nil
}

// checkBuffer checks tensor and lists alone.
func checkBuffer(t *tensor.Tensor, ranks, keys int) error {
	if err := device.Check(t); err != nil {
		return fmt.Errorf("register_recv_buffer: the tensor cannot be used: %w", err)
	}
	if ranks != keys {
		return errs.Invalid("register_recv_buffer: worker ranks and keys: the lists differ in length (got %d ranks, want %d): give one rank per key", ranks, keys)
	}
	if keys == 0 || t.Len() == 0 {
		return errs.Invalid("register_recv_buffer: a buffer of %d bytes for %d keys: give at least one of each", t.Len(), keys)
	}
	if t.Len()%keys != 0 {
		return errs.Invalid("register_recv_buffer: %d bytes do not divide by %d keys", t.Len(), keys)
	}
	size, align := t.Len()/keys, t.DType().Align()
	if keys > 1 && size%align != 0 {
		return errs.Invalid("register_recv_buffer: chunks of %d bytes do not begin at multiples of the %d bytes that %s needs", size, align, t.DType())
	}
	return nil
}

// bufferTable has the receive buffers of a server. Guarded by Server.mu.
type bufferTable struct {
	s          *Server
	buffers    []*ReceiveBuffer
	ended      []*ReceiveBuffer // that are registered with devices
	withdrawn  []*chunk         // whose grants are withdrawn and not ended
	generation uint32           // of the latest change
}

// register makes the chunks of b receive in place of those that it replaces. After an error nothing has changed. Under
// Server.mu.
func (t *bufferTable) register(b *ReceiveBuffer, ranks []stepvan.Rank, keys []tensor.Key) error {
	if t.s.closed {
		return errClosed("register_recv_buffer")
	}
	if err := t.cutChunks(b, ranks, keys); err != nil {
		return err
	}
	replaced, err := b.replaced()
	if err != nil {
		return err
	}
	if err := t.checkOverlap(b, replaced); err != nil {
		return err
	}
	if err := b.tensor.Retain(); err != nil {
		return fmt.Errorf("register_recv_buffer: the tensor cannot be used: %w", err)
	}
	var ignored deferredWork // await flushes the same outboxes
	t.dismiss(replaced, &ignored)
	t.generation++
	b.generation = t.generation
	for _, c := range b.chunks {
		c.generation = b.generation
		if c.worker.chunks == nil {
			c.worker.chunks = make(map[tensor.Key]*chunk)
		}
		c.worker.chunks[c.key] = c
	}
	b.live = len(b.chunks)
	t.buffers = append(t.buffers, b)
	change := t.announce(wire.OpAnnounce, b.generation, b.chunks)
	t.awaitWithdrawn(change, replaced)
	b.changes = append(b.changes, change)
	return nil
}

// cutChunks makes the chunks of b.
func (t *bufferTable) cutChunks(b *ReceiveBuffer, ranks []stepvan.Rank, keys []tensor.Key) error {
	mem := b.tensor.Bytes()
	size := len(mem) / len(keys)
	type owner struct {
		rank stepvan.Rank
		key  tensor.Key
	}
	seen := make(map[owner]bool, len(keys))
	for i, k := range keys {
		w := t.s.workerOf(ranks[i])
		if w == nil {
			return errs.Invalid("register_recv_buffer: this server is not paired with worker %d", ranks[i])
		}
		o := owner{ranks[i], k}
		if seen[o] {
			return errs.Invalid("register_recv_buffer: key %d of worker %d occurs twice", k, ranks[i])
		}
		seen[o] = true
		b.chunks = append(b.chunks, &chunk{
			buffer: b, worker: w, key: k, offset: int64(i * size), mem: mem[i*size : (i+1)*size : (i+1)*size],
		})
	}
	return nil
}

// replaced returns the chunks that those of b replace.
func (b *ReceiveBuffer) replaced() (list []*chunk, err error) {
	for _, c := range b.chunks {
		old := c.worker.chunks[c.key]
		if old == nil {
			continue
		}
		if old.user != nil {
			return nil, old.errBusy("register_recv_buffer")
		}
		list = append(list, old)
	}
	return list, nil
}

// checkOverlap refuses memory that is part of another live chunk, unless b replaces that.
func (t *bufferTable) checkOverlap(b *ReceiveBuffer, replaced []*chunk) error {
	given := make(chunkSet, len(replaced))
	for _, c := range replaced {
		given[c] = struct{}{}
	}
	for _, other := range t.buffers {
		for _, c := range other.chunks {
			if _, ok := given[c]; !ok && c.registered() && c.sharesMemory(b) {
				return errs.Invalid("register_recv_buffer: the memory overlaps that of key %d of %s: unregister that buffer first", c.key, c.worker.name)
			}
		}
	}
	return nil
}

// dismiss ends chunks. It tells the workers only of those that are granted, because they must release these. Under
// Server.mu.
func (t *bufferTable) dismiss(chunks []*chunk, later *deferredWork) {
	var granted []*chunk
	for _, c := range chunks {
		if c.state == chunkGranted {
			granted = append(granted, c)
		} else {
			t.remove(c)
		}
	}
	if len(granted) > 0 {
		later.flush = append(later.flush, t.unregister(granted).awaited...)
	}
}

// unregister ends chunks and queues the news for their workers. Under Server.mu; the caller flushes the outboxes.
func (t *bufferTable) unregister(chunks []*chunk) *bufferChange {
	t.generation++
	for _, c := range chunks {
		t.remove(c)
	}
	return t.announce(wire.OpWithdraw, t.generation, chunks)
}

// remove ends a chunk, and its buffer with the last one. Under Server.mu. The caller tells a worker that the chunk is
// granted to, with the current generation.
func (t *bufferTable) remove(c *chunk) {
	delete(c.worker.chunks, c.key)
	delete(c.worker.ungranted, c)
	t.withdraw(c, t.generation)
	b := c.buffer
	if b.live--; b.live == 0 {
		b.tensor.Release()
		t.deregister(b)
		b.mirror.end()
		t.buffers = slices.DeleteFunc(t.buffers, func(other *ReceiveBuffer) bool { return other == b })
	}
}
