package server

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
)

// requestHandler handles the channel of requests. The driver makes all calls, one at a time.
type requestHandler struct{ s *Server }

// Opened implements link.Handler.
func (h requestHandler) Opened(session *link.Session) error {
	h.s.openSession(session)
	return nil
}

// Lost implements link.Handler.
func (h requestHandler) Lost(session *link.Session, err error) { h.s.endSession(session, err) }

// Place tells the link which memory the pushes go to.
func (h requestHandler) Place(m *link.Inbound, dst [][]byte) ([][]byte, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	req, err := h.accept(m)
	if err != nil {
		return dst, err
	}
	m.User = req
	for i := range req.pushes {
		if b := req.pushes[i].Bytes(); len(b) > 0 && formOf(m, &req.meta.Pushes[i]) == pushSent {
			dst = append(dst, b)
		}
	}
	return dst, nil
}

// Receive queues a request, or refuses it.
func (h requestHandler) Receive(m *link.Inbound) (kept bool) {
	s := h.s
	if m.Header.Op == wire.OpFence {
		s.mu.Lock()
		kept = s.arrivals.takeFence(h, m)
		s.mu.Unlock()
		if !kept {
			h.fence(m)
		}
		return kept
	}
	s.mu.Lock()
	req, err := h.requestOf(m)
	if s.arrivals.take(h, m, req, err) {
		s.mu.Unlock()
		return true
	}
	next := h.enqueue(m, req, err)
	s.mu.Unlock()
	next.finish(s, m)
	return next.kept
}

// requestOf returns the request of a requestOf message. Its pushes have all their bytes. Under Server.mu.
func (h requestHandler) requestOf(m *link.Inbound) (*requestSlot, error) {
	req, placed := m.User.(*requestSlot)
	err := m.Refused
	switch {
	case placed && err == nil && h.s.closed:
		err = errClosed("push_pull")
	case !placed && err == nil:
		if req, err = h.accept(m); err == nil {
			req.copyPayload(m)
		}
	}
	if placed && err != nil {
		h.s.requests.recycle(req) // the link could not use the placement, or the server was closed
	}
	return req, err
}

// Abort drops a request whose session was lost before all of it came.
func (h requestHandler) Abort(m *link.Inbound, _ error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if req, ok := m.User.(*requestSlot); ok {
		h.s.requests.recycle(req)
	}
}

// copyPayload copies what the van has kept of the payload to its pushes.
func (r *requestSlot) copyPayload(m *link.Inbound) {
	payload := m.Payload
	for i := range r.pushes {
		if d := &r.meta.Pushes[i]; formOf(m, d) == pushSent {
			copy(r.pushes[i].Bytes(), payload[:d.Bytes])
			payload = payload[d.Bytes:]
		}
	}
}

// followUp is what follows the receipt of a request, without Server.mu. The hot path has this in place of deferredWork,
// which is larger.
type followUp struct {
	from    *workerPeer
	refusal error // why the request was refused; nil: it was not
	kept    bool  // the request keeps the message
	flush   bool  // from's outbox has something to send
	wake    bool  // GetBatch may have waited for it
}

// enqueue queues a complete request, or refuses it because of err. Under Server.mu; finish follows without it.
func (h requestHandler) enqueue(m *link.Inbound, req *requestSlot, err error) followUp {
	s := h.s
	if err != nil {
		return h.refuse(m, err)
	}
	req.received = m.Received
	req.on(eventComplete)
	kept := req.pool != nil
	if kept {
		req.held = m
	}
	s.batches.push(req)
	return followUp{from: req.from, kept: kept, flush: len(req.from.outbox) > 0, wake: s.batches.enough()}
}

// refuse queues the error for the worker. Under Server.mu.
func (h requestHandler) refuse(m *link.Inbound, err error) followUp {
	f := followUp{from: h.s.sessions.open[m.Session]}
	f.wake, f.refusal = h.s.batches.queueRefusal(f.from, m, err)
	if f.from != nil && !isProtocolError(f.refusal) {
		h.s.messages.queueError(f.from, m.Header.Request, f.refusal)
		f.flush = true
	}
	return f
}

// finish sends and wakes. The caller does not hold Server.mu.
func (f *followUp) finish(s *Server, m *link.Inbound) {
	switch {
	case f.refusal == nil:
	case isProtocolError(f.refusal):
		s.breakOff(m.Session, f.refusal)
	case f.from != nil:
		s.opt.Log.Warn().Err(f.refusal).Str("peer", f.from.name).Msg("refused a request")
	}
	if f.flush {
		s.messages.flush(f.from)
	}
	if f.wake {
		s.transport.Engine().Set(&s.batches.arrival)
	}
}

// isProtocolError reports whether err costs the worker its session.
func isProtocolError(err error) bool {
	var broken *stepvan.ProtocolError
	return errors.As(err, &broken)
}

// pushForm says how the bytes of a push come to this server. The pushes of one message may come in different forms.
type pushForm uint8

const (
	pushSent    pushForm = iota // in the message
	pushWritten                 // the worker has written them into memory that it was granted
	pushInPlace                 // they stay where the worker has them, and the server reads them there
)

// formOf returns the form of the push that d describes.
func formOf(m *link.Inbound, d *wire.Descriptor) pushForm {
	switch {
	case d.Flags&wire.DescInPlace != 0:
		return pushInPlace
	case m.Written > 0 && d.Region != 0 && d.Bytes > 0:
		return pushWritten
	}
	return pushSent
}

// poolAlign is the alignment of each push in pooled memory. It suits every element type and is a cache line.
const poolAlign = 64

func alignUp(n int64) int64 { return (n + poolAlign - 1) &^ (poolAlign - 1) }

// accept makes a request of a message, and finds memory for its pushes. An error refuses the request; a
// *stepvan.ProtocolError ends the session. Under Server.mu. 0 allocations in the steady state.
func (h requestHandler) accept(m *link.Inbound) (*requestSlot, error) {
	from, err := h.admit(m)
	if err != nil {
		return nil, err
	}
	req := h.s.requests.take(eventArrive)
	req.from, req.session = from, m.Session
	req.number, req.traced = m.Header.Request, m.Header.Flags&wire.FlagTrace != 0
	if err = req.meta.Decode(&m.Header, m.Meta); err == nil {
		err = req.claimMemory(m)
	}
	if err != nil {
		h.s.requests.recycle(req)
		return nil, err
	}
	return req, nil
}

// admit returns the worker that has sent a request, and refuses requests that no worker may send now.
func (h requestHandler) admit(m *link.Inbound) (*workerPeer, error) {
	s := h.s
	if s.closed {
		return nil, errClosed("push_pull")
	}
	if s.stop.over() {
		return nil, s.stop.err()
	}
	from := s.sessions.open[m.Session]
	if from == nil || !from.paired {
		return nil, errs.Invalid("server %d: it is not paired with %s, or has not started", s.rank, m.Session.Peer().Name)
	}
	if m.Header.Op == wire.OpRouted && s.opt.Policy == stepvan.LockStep {
		return nil, errs.Invalid("server %d: lock-step batches need broadcast routing: set STEPVAN_ROUTING=broadcast on the workers, or STEPVAN_BATCH=any on the servers", s.rank)
	}
	return from, nil
}

// claimMemory finds memory for the pushes of m, and makes the lists that Request returns.
func (r *requestSlot) claimMemory(m *link.Inbound) error {
	r.makeLists()
	pooled, err := r.claimChunks(m)
	if err != nil {
		return err
	}
	opt := &r.server.opt
	if pooled > opt.PoolLimit {
		return errs.Invalid("server %d: a push outside its receive buffers is too large (got %d bytes, want at most %d): register a buffer for the keys, or raise STEPVAN_POOL_BYTES there", r.server.rank, pooled, opt.PoolLimit)
	}
	if pooled > 0 {
		if r.pool, err = opt.Memory.Get(int(pooled)); err != nil {
			return fmt.Errorf("server %d: no memory for a push outside its receive buffers: %w", r.server.rank, err)
		}
	}
	return r.makeTensors()
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
		case form == pushInPlace:
			r.chunks = append(r.chunks, nil)
			continue
		case form == pushWritten:
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
	r.touched = r.pushedBytes + int64(sum)
	if sum != m.Written {
		return 0, &stepvan.ProtocolError{Field: "region", Reason: fmt.Sprintf("the worker wrote %d bytes, and the pushes name grants for %d", m.Written, sum)}
	}
	return pooled, nil
}

// writtenChunk returns the chunk into which the worker has written push i, after a check of what the worker says. For a
// chunk that has ended since, it returns nil, and makeTensors copies the push out of the chunk. registered is the chunk
// that the key has now, or nil.
func (r *requestSlot) writtenChunk(i int, registered *chunk) (*chunk, error) {
	d := &r.meta.Pushes[i]
	if registered != nil && registered.state == chunkGranted && registered.named(d) {
		return registered, nil
	}
	if c := r.server.buffers.findWithdrawn(r.session, d); c != nil {
		late, err := c.late(i, d)
		if err == nil {
			r.late = append(r.late, late)
		}
		return nil, err
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
		copy(r.pushes[l.index].Bytes(), l.mem) // arrivals copies what an accelerator holds
	}
	return nil
}
