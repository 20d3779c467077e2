package server

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/link"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/wire"
)

// poolAlign is the alignment of each push in pooled memory: that of any element, and a cache line.
const poolAlign = 64

// accept makes a request of a message and finds memory for its pushes. Under
// s.mu. 0 allocations in the steady state. An error refuses the request, an
// *errs.ProtocolError the worker.
func (s *Server) accept(m *link.Inbound) (*incoming, error) {
	if s.closed {
		return nil, errClosed("push_pull")
	}
	from := s.sessions[m.Session]
	if from == nil || !from.paired {
		return nil, errs.Invalid("server %d is not paired with %s, or has not started", s.rank, m.Session.Peer().Name)
	}
	if m.Header.Op == wire.OpRouted && s.opt.Policy == LockStep {
		return nil, errs.Invalid("server %d batches in lock-step, which needs broadcast routing; set STEPVAN_ROUTING=broadcast on the workers, or STEPVAN_BATCH=any on the servers", s.rank)
	}
	in := s.take()
	in.stage, in.from, in.session = receiving, from, m.Session
	in.id, in.traced = m.Header.Request, m.Header.Flags&wire.FlagTrace != 0
	in.bytes = int64(m.Header.Total)
	if err := s.fill(in, &m.Header, m.Meta); err != nil {
		s.recycle(in)
		return nil, err
	}
	return in, nil
}

// fill decodes the meta and finds memory.
func (s *Server) fill(in *incoming, h *wire.Header, meta []byte) error {
	if err := in.meta.Decode(h, meta); err != nil {
		return err
	}
	in.list()
	pooled, err := in.claim(h.Generation)
	if err != nil {
		return err
	}
	if pooled > s.opt.PoolLimit {
		return errs.Invalid("server %d has no registered buffer for %d bytes of the push, and takes at most %d without one; register a buffer for the keys, or raise STEPVAN_POOL_BYTES there", s.rank, pooled, s.opt.PoolLimit)
	}
	if pooled > 0 {
		if in.pool, err = s.opt.Memory.Get(int(pooled)); err != nil {
			return fmt.Errorf("server %d has no memory for a push without registered buffer: %w", s.rank, err)
		}
	}
	return in.view()
}

// list makes the lists that Request shows.
func (in *incoming) list() {
	for i := range in.meta.Pushes {
		in.keys = append(in.keys, in.meta.Pushes[i].Key)
	}
	for i := range in.meta.Pulls {
		d := &in.meta.Pulls[i]
		in.pulls = append(in.pulls, Pull{
			Key: d.Key, Bytes: int64(d.Bytes), DType: d.DType, Shape: d.Shape,
			Variable: d.Flags&wire.DescVariable != 0,
		})
	}
}

// claim marks the chunks of the pushes as used, and returns how many bytes the
// pushes without a chunk take. A request that was prepared before the worker
// knew of a registration does not use it.
func (in *incoming) claim(generation uint32) (pooled int64, err error) {
	for i := range in.meta.Pushes {
		d := &in.meta.Pushes[i]
		c := in.from.chunks[d.Key]
		if c != nil && generation < c.generation {
			c = nil
		}
		if c == nil {
			pooled += roundUp(int64(d.Bytes))
		} else if err := c.take(in, d); err != nil {
			return 0, err
		}
		in.chunks = append(in.chunks, c)
	}
	return pooled, nil
}

// view makes the tensors of the pushes.
func (in *incoming) view() error {
	var at int64
	for i := range in.meta.Pushes {
		d := &in.meta.Pushes[i]
		var t tensor.Tensor
		var err error
		switch c := in.chunks[i]; {
		case c != nil:
			t, err = c.view(d)
		case d.Bytes == 0:
			t, err = tensor.FromBytes(d.DType, d.Shape, nil)
		default:
			t, err = tensor.FromRegion(in.pool, at, d.DType, d.Shape)
			at += roundUp(int64(d.Bytes))
		}
		if err != nil {
			return fmt.Errorf("push of key %d: %w", d.Key, err)
		}
		in.pushes = append(in.pushes, t)
	}
	return nil
}

func roundUp(n int64) int64 { return (n + poolAlign - 1) &^ (poolAlign - 1) }
