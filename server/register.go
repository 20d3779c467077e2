package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// RegisterRecvBuffer cuts t's bytes evenly over the lists: chunk i receives what worker
// ranks[i] pushes with keys[i], in place, from the time this returns. GetBatch
// hands out views of the chunks. The registration holds t's memory until
// Unregister, or until all its chunks have been replaced.
//
// Registering a (rank, key) again replaces its chunk. Errors, with which nothing has
// changed: stepvan.ErrInvalid (lists of unequal length, bytes that do not divide, a chunk that
// does not begin at a multiple of t's element alignment, memory that another live
// registration holds, a rank that is not paired); stepvan.ErrBusy when a request on a
// chunk to be replaced is unanswered; stepvan.ErrClosed.
//
// It waits until the workers that live have acknowledged, so that a push they issue
// after learning of it is received in place, and have let go of the chunks that it replaces or are dead. A push that was
// prepared before lands in pooled memory. When that takes longer than Options.Patience, the buffer is registered all the
// same, and the error is a *PendingError, which has the registration: its Wait goes on waiting.
func (s *Server) RegisterRecvBuffer(t tensor.Tensor, ranks []stepvan.Rank, keys []tensor.Key) (*ReceiveBuffer, error) {
	if err := checkBuffer(&t, len(ranks), len(keys)); err != nil {
		return nil, err
	}
	reg := &ReceiveBuffer{s: s, tensor: t}
	s.mu.Lock()
	replaced, err := s.install(reg, ranks, keys)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	n := s.announce(wire.OpAnnounce, reg.generation, reg.chunks)
	s.awaitRetractions(n, replaced)
	reg.notices = append(reg.notices, n)
	s.mu.Unlock()
	n.settle(s)
	ctx, cancel := s.patience()
	defer cancel()
	err = reg.await(ctx, "register_recv_buffer")
	switch {
	case errors.Is(err, stepvan.ErrClosed):
		return nil, err
	case err != nil:
		return nil, &PendingError{Registration: reg, Err: err}
	}
	return reg, nil
}

// checkBuffer looks at tensor and lists alone.
func checkBuffer(t *tensor.Tensor, ranks, keys int) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("register_recv_buffer: the tensor cannot be used: %w", err)
	}
	if ranks != keys {
		return errs.Invalid("register_recv_buffer: %d worker ranks with %d keys; give one rank per key", ranks, keys)
	}
	if keys == 0 || t.Len() == 0 {
		return errs.Invalid("register_recv_buffer: a buffer of %d bytes for %d keys; give at least one of each", t.Len(), keys)
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

// install makes the chunks receive, and returns those whose place they take. Under s.mu.
func (s *Server) install(reg *ReceiveBuffer, ranks []stepvan.Rank, keys []tensor.Key) ([]*chunk, error) {
	if s.closed {
		return nil, errClosed("register_recv_buffer")
	}
	if err := s.cutChunks(reg, ranks, keys); err != nil {
		return nil, err
	}
	replaced, err := reg.replaces()
	if err != nil {
		return nil, err
	}
	if err := s.checkOverlap(reg, replaced); err != nil {
		return nil, err
	}
	if err := reg.tensor.Retain(); err != nil {
		return nil, fmt.Errorf("register_recv_buffer: the tensor cannot be used: %w", err)
	}
	ended := slices.Collect(maps.Keys(replaced))
	s.dismiss(ended)
	s.generation++
	reg.generation = s.generation
	for _, c := range reg.chunks {
		c.generation = reg.generation
		if c.worker.chunks == nil {
			c.worker.chunks = make(map[tensor.Key]*chunk)
		}
		c.worker.chunks[c.key] = c
	}
	reg.live = len(reg.chunks)
	s.registrations = append(s.registrations, reg)
	return ended, nil
}

func (s *Server) cutChunks(reg *ReceiveBuffer, ranks []stepvan.Rank, keys []tensor.Key) error {
	mem := reg.tensor.Bytes()
	size := len(mem) / len(keys)
	type owner struct {
		rank stepvan.Rank
		key  tensor.Key
	}
	seen := make(map[owner]bool, len(keys))
	for i, k := range keys {
		w := s.paired(ranks[i])
		if w == nil {
			return errs.Invalid("register_recv_buffer: this server is not paired with worker %d", ranks[i])
		}
		o := owner{ranks[i], k}
		if seen[o] {
			return errs.Invalid("register_recv_buffer: key %d of worker %d occurs twice", k, ranks[i])
		}
		seen[o] = true
		reg.chunks = append(reg.chunks, &chunk{
			reg: reg, worker: w, key: k, offset: int64(i * size), mem: mem[i*size : (i+1)*size : (i+1)*size],
		})
	}
	return nil
}

func (s *Server) paired(rank stepvan.Rank) *remote {
	for _, r := range s.workers {
		if r.rank == rank {
			return r
		}
	}
	return nil
}

// replaces returns the chunks whose place reg takes.
func (reg *ReceiveBuffer) replaces() (map[*chunk]*chunk, error) {
	replaced := make(map[*chunk]*chunk)
	for _, c := range reg.chunks {
		old := c.worker.chunks[c.key]
		if old == nil {
			continue
		}
		if old.user != nil {
			return nil, old.busy("register_recv_buffer")
		}
		replaced[old] = old
	}
	return replaced, nil
}

func (c *chunk) busy(op string) error {
	return &stepvan.OpError{Op: op, Peer: c.worker.name, Err: fmt.Errorf("a request on key %d has not been answered; respond to it first: %w", c.key, stepvan.ErrBusy)}
}

// checkOverlap refuses memory of which a live chunk, other than those replaced, has a part.
func (s *Server) checkOverlap(reg *ReceiveBuffer, replaced map[*chunk]*chunk) error {
	lo := start(reg.tensor.Bytes())
	hi := lo + uintptr(reg.tensor.Len())
	for _, other := range s.registrations {
		for _, c := range other.chunks {
			if from := start(c.mem); c.installed() && replaced[c] == nil && from < hi && from+uintptr(len(c.mem)) > lo {
				return errs.Invalid("register_recv_buffer: the memory overlaps that of key %d of %s; unregister that buffer first", c.key, c.worker.name)
			}
		}
	}
	return nil
}
