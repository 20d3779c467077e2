package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// poolAlign is the alignment of each push in pooled memory: that of any element, and a cache line.
const poolAlign = 64

// accept makes a request of a message with this meta and finds memory for its pushes. Under
// s.mu. 0 allocations in the steady state. An error refuses the request, an
// *stepvan.ProtocolError the worker.
func (s *Server) accept(m *link.Inbound, meta []byte) (*incoming, error) {
	if s.closed {
		return nil, errClosed("push_pull")
	}
	if s.abandoned() {
		return nil, s.errAbandoned()
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
	if err := s.fill(in, m, meta); err != nil {
		s.recycle(in)
		return nil, err
	}
	return in, nil
}

// fill decodes the meta and finds memory.
func (s *Server) fill(in *incoming, m *link.Inbound, meta []byte) error {
	if err := in.meta.Decode(&m.Header, meta); err != nil {
		return err
	}
	in.list()
	pooled, err := s.claim(in, m)
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
	return s.show(in)
}

// list makes the lists that Request shows.
func (in *incoming) list() {
	for i := range in.meta.Pushes {
		in.keys = append(in.keys, in.meta.Pushes[i].Key)
		in.bytes += int64(in.meta.Pushes[i].Bytes)
	}
	for i := range in.meta.Pulls {
		d := &in.meta.Pulls[i]
		in.pulls = append(in.pulls, Pull{})
		p := &in.pulls[i]
		p.Key, p.Bytes, p.DType, p.Shape = d.Key, int64(d.Bytes), d.DType, d.Shape
		p.Variable = d.Flags&wire.DescVariable != 0
	}
}

// claim marks the chunks of the pushes as used, and returns how many bytes the
// pushes without a chunk take.
func (s *Server) claim(in *incoming, m *link.Inbound) (pooled int64, err error) {
	for i := range in.meta.Pushes {
		d := &in.meta.Pushes[i]
		if d.Flags&wire.DescInPlace != 0 {
			in.chunks = append(in.chunks, nil)
			continue
		}
		c := in.from.chunks[d.Key]
		switch {
		case m.Written && d.Bytes > 0:
			if c, err = s.written(in, i, c); err != nil {
				return 0, err
			}
		case c != nil && m.Header.Generation < c.generation:
			c = nil // the request was prepared before the worker knew of it
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

// late is a push that was written into a chunk which has ended meanwhile.
type late struct {
	push int
	mem  []byte
}

// written returns the chunk into which the worker says to have written push i. It is nil for one that
// has ended since: the push is then copied out of it. c is what is registered for the key.
func (s *Server) written(in *incoming, i int, c *chunk) (*chunk, error) {
	d := &in.meta.Pushes[i]
	if c != nil && c.grant != 0 && uint64(c.grant) == d.Region && c.generation == d.Generation && d.Offset == 0 {
		return c, nil
	}
	if t := s.retracting(in, d); t != nil {
		in.late = append(in.late, late{i, t.chunk.mem[:d.Bytes]})
		return nil, nil
	}
	return nil, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the push of key %d was written into memory that is not registered for it", d.Key)}
}

// show makes the tensors of the pushes.
func (s *Server) show(in *incoming) error {
	var at int64
	for i := range in.meta.Pushes {
		d := &in.meta.Pushes[i]
		in.pushes = append(in.pushes, tensor.Tensor{})
		t := &in.pushes[i]
		var err error
		switch c := in.chunks[i]; {
		case c != nil:
			err = c.view(t, d)
		case d.Bytes > 0 && d.Flags&wire.DescInPlace != 0:
			*t, err = s.readInPlace(in, d)
		case d.Bytes == 0:
			*t, err = tensor.FromBytes(d.DType, d.Shape, nil)
		default:
			err = t.SetRegion(in.pool, at, d.DType, &d.Shape)
			at += roundUp(int64(d.Bytes))
		}
		if err != nil {
			return fmt.Errorf("push of key %d: %w", d.Key, err)
		}
	}
	for _, l := range in.late {
		copy(in.pushes[l.push].Bytes(), l.mem)
	}
	return nil
}

func roundUp(n int64) int64 { return (n + poolAlign - 1) &^ (poolAlign - 1) }
