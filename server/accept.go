package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// poolAlign is the alignment of each push in pooled memory. It suits every element type and is a cache line.
const poolAlign = 64

func alignUp(n int64) int64 { return (n + poolAlign - 1) &^ (poolAlign - 1) }

// pushForm says how the bytes of a push come to this server. The pushes of one message may come in different forms.
type pushForm uint8

const (
	sent    pushForm = iota // in the message
	written                 // the worker has written them into memory that it was granted
	inPlace                 // they stay where the worker has them, and the server reads them there
)

// formOf returns the form of the push that d describes.
func formOf(m *link.Inbound, d *wire.Descriptor) pushForm {
	switch {
	case d.Flags&wire.DescInPlace != 0:
		return inPlace
	case m.Written > 0 && d.Region != 0 && d.Bytes > 0:
		return written
	}
	return sent
}

// latePush was written into a chunk that has ended meanwhile.
type latePush struct {
	index int
	mem   []byte
}

// accept makes a request of a message, and finds memory for its pushes. An error refuses the request; a
// *stepvan.ProtocolError ends the session. Under Server.mu. 0 allocations in the steady state.
func (r receiver) accept(m *link.Inbound) (*requestSlot, error) {
	s := r.s
	if s.closed {
		return nil, errClosed("push_pull")
	}
	if s.stop.over() {
		return nil, s.stop.err()
	}
	from := s.sessions[m.Session]
	if from == nil || !from.paired {
		return nil, errs.Invalid("server %d: it is not paired with %s, or has not started", s.rank, m.Session.Peer().Name)
	}
	if m.Header.Op == wire.OpRouted && s.opt.Policy == LockStep {
		return nil, errs.Invalid("server %d: lock-step batches need broadcast routing: set STEPVAN_ROUTING=broadcast on the workers, or STEPVAN_BATCH=any on the servers", s.rank)
	}
	req := s.requests.take(eventArrive)
	req.from, req.session = from, m.Session
	req.number, req.traced = m.Header.Request, m.Header.Flags&wire.FlagTrace != 0
	if err := r.prepare(req, m); err != nil {
		s.requests.recycle(req)
		return nil, err
	}
	return req, nil
}

// prepare decodes the meta and finds memory.
func (r receiver) prepare(req *requestSlot, m *link.Inbound) error {
	s := r.s
	if err := req.meta.Decode(&m.Header, m.Meta); err != nil {
		return err
	}
	req.makeLists()
	pooled, err := req.claimChunks(m)
	if err != nil {
		return err
	}
	if pooled > s.opt.PoolLimit {
		return errs.Invalid("server %d: a push outside its receive buffers is too large (got %d bytes, want at most %d): register a buffer for the keys, or raise STEPVAN_POOL_BYTES there", s.rank, pooled, s.opt.PoolLimit)
	}
	if pooled > 0 {
		if req.pool, err = s.opt.Memory.Get(int(pooled)); err != nil {
			return fmt.Errorf("server %d: no memory for a push outside its receive buffers: %w", s.rank, err)
		}
	}
	return req.makeTensors()
}

// makeLists fills the lists that Request returns.
func (r *requestSlot) makeLists() {
	for i := range r.meta.Pushes {
		r.keys = append(r.keys, r.meta.Pushes[i].Key)
		r.pushedBytes += int64(r.meta.Pushes[i].Bytes)
	}
	for i := range r.meta.Pulls {
		d := &r.meta.Pulls[i]
		r.pulls = append(r.pulls, Pull{})
		p := &r.pulls[i]
		p.Key, p.Bytes, p.DType, p.Shape = d.Key, int64(d.Bytes), d.DType, d.Shape
		p.Variable = d.Flags&wire.DescVariable != 0
	}
}

// claimChunks takes the chunks of the pushes. It returns how many bytes the pushes without a chunk need.
func (r *requestSlot) claimChunks(m *link.Inbound) (pooled int64, err error) {
	var sum uint64 // of what was written
	for i := range r.meta.Pushes {
		d := &r.meta.Pushes[i]
		c := r.from.chunks[d.Key]
		switch form := formOf(m, d); {
		case form == inPlace:
			r.chunks = append(r.chunks, nil)
			continue
		case form == written:
			sum += d.Bytes
			if c, err = r.writtenChunk(i, c); err != nil {
				return 0, err
			}
		case c != nil && m.Header.Generation < c.generation:
			c = nil // the worker prepared the request before it knew of the chunk
		}
		if c == nil {
			pooled += alignUp(int64(d.Bytes))
		} else if err := c.claim(r, d); err != nil {
			return 0, err
		}
		r.chunks = append(r.chunks, c)
	}
	if sum != m.Written {
		return 0, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the worker wrote %d bytes, and the pushes name grants for %d", m.Written, sum)}
	}
	return pooled, nil
}

// writtenChunk returns the chunk into which the worker has written push i, after a check of what the worker says. For a
// chunk that has ended since, it returns nil, and makeTensors copies the push out of the chunk. The other argument is
// the chunk that is registered for the key, or nil.
func (r *requestSlot) writtenChunk(i int, registered *chunk) (*chunk, error) {
	d := &r.meta.Pushes[i]
	if registered != nil && registered.state == chunkGranted && registered.named(d) {
		return registered, nil
	}
	if c := r.server.buffers.findWithdrawn(r.session, d); c != nil {
		r.late = append(r.late, latePush{i, c.mem[:d.Bytes]})
		return nil, nil
	}
	return nil, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the push of key %d was written into memory that is not registered for it", d.Key)}
}

// makeTensors makes the tensors of the pushes.
func (r *requestSlot) makeTensors() error {
	var at int64
	for i := range r.meta.Pushes {
		d := &r.meta.Pushes[i]
		r.pushes = append(r.pushes, tensor.Tensor{})
		t := &r.pushes[i]
		var err error
		switch c := r.chunks[i]; {
		case c != nil:
			err = c.makeTensor(t, d)
		case d.Bytes > 0 && d.Flags&wire.DescInPlace != 0:
			*t, err = r.viewPush(d)
		case d.Bytes == 0:
			*t, err = tensor.FromBytes(d.DType, d.Shape, nil)
		default:
			err = t.SetRegion(r.pool, at, d.DType, &d.Shape)
			at += alignUp(int64(d.Bytes))
		}
		if err != nil {
			return fmt.Errorf("push of key %d: %w", d.Key, err)
		}
	}
	for _, l := range r.late {
		copy(r.pushes[l.index].Bytes(), l.mem)
	}
	return nil
}
