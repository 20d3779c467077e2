package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// Respond answers the pulls of one request, in their order, and ends the request: its ID is stale, and its chunks may
// be written again. A request without pulls is answered with no tensors, which ends it at the worker and frees its
// keys. If the worker of such a request has left meanwhile, the Respond has no effect and returns nil.
//
// Respond returns at once. The tensors are borrowed until the Response is done; a program that writes to them earlier
// uses [Server.RespondCopy]. A worker that is gone fails the Response, not the call. After an error of the call nothing
// was sent, and the request is still to be answered:
//
//   - stepvan.ErrInvalid: number or sizes of the tensors do not fit the pulls. A tensor that is smaller than its pull
//     fits only a Variable pull;
//   - stepvan.ErrStale: the request was answered before, or never given;
//   - stepvan.ErrWouldBlock: the queue to the worker is full. Wait for an earlier Response and try again;
//   - stepvan.ErrClosed: the server was stopped, or a tensor's region is closed.
//
// Any goroutine may call it. Budget: 0 allocations in the steady state, one message.
func (s *Server) Respond(tensors []tensor.Tensor, id RequestID) (Response, error) {
	r, _, err := s.responder.respond(&answers{tensors: tensors, id: id}, false)
	return r, err
}

// RespondVec answers several requests with rows of one tensor. It cuts ret along dimension 0 into consecutive slices.
// Slice i has as many rows as like[i], and answers ids[i]. Where a request has several pulls, its slice is cut further
// by their row counts, in pull order. Surplus rows of ret are ignored.
//
// RespondVec sends all responses or none, and returns the errors of [Server.Respond]. It refuses lists of unequal
// length, too few rows, rows that do not fit a pull, and an ID that occurs twice. The Response is done when all workers
// have acknowledged.
func (s *Server) RespondVec(ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (Response, error) {
	r, _, err := s.responder.respond(&answers{rows: &ret, like: like, ids: ids}, false)
	return r, err
}

// RespondCopy is [Server.Respond] for programs that write to their tensors again at once. When it returns and borrowed
// is false, the tensors are the caller's again. The server writes an answer into the worker's memory where it reaches
// that (see [Request.Out]). Of the other answers it copies to pooled memory what the van does not take at once. When
// the pool is full, borrowed is true. Then the tensors are borrowed until the Response is done, and the caller waits
// for it before it writes to them.
//
// RespondCopy returns the errors of Respond without stepvan.ErrWouldBlock: what a full queue does not take goes as soon
// as it fits.
//
// Any goroutine may call it, and it never waits. Budget: 0 allocations in the steady state, and one message. It copies
// once where it reaches the worker's memory, else at most once beside the copies of the van.
func (s *Server) RespondCopy(tensors []tensor.Tensor, id RequestID) (r Response, borrowed bool, err error) {
	return s.responder.respond(&answers{tensors: tensors, id: id}, true)
}

// RespondVecCopy is [Server.RespondVec] with the copies of [Server.RespondCopy].
func (s *Server) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (r Response, borrowed bool, err error) {
	return s.responder.respond(&answers{rows: &ret, like: like, ids: ids}, true)
}

// answers is what a program has given to answer requests with.
type answers struct {
	tensors []tensor.Tensor // of Respond: one per pull of id
	id      RequestID
	rows    *tensor.Tensor // of RespondVec: cut by like for ids; nil for Respond
	like    []tensor.Tensor
	ids     []RequestID
}

// prepare claims the requests and assigns them their answers. Under Server.mu.
func (d *responder) prepare(c *respondCall, a *answers) error {
	if a.rows != nil {
		return d.prepareRows(c, a)
	}
	if err := d.claim(c, a.id); err != nil {
		return err
	}
	r := c.requests[0]
	if len(a.tensors) != len(r.pulls) {
		return errs.Invalid("respond: tensors for the request of %s: there must be one per pull (got %d, want %d)", r.from.name, len(a.tensors), len(r.pulls))
	}
	for i := range a.tensors {
		if err := c.messages[0].addAnswer(r, i, &a.tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

// prepareRows is prepare for RespondVec.
func (d *responder) prepareRows(c *respondCall, a *answers) error {
	if len(a.like) != len(a.ids) {
		return errs.Invalid("respond_vec: tensors that count the rows: there must be one per request (got %d, want %d)", len(a.like), len(a.ids))
	}
	if len(a.ids) == 0 {
		return errs.Invalid("respond_vec: no requests to answer")
	}
	if err := a.rows.Check(); err != nil {
		return err
	}
	if a.rows.Shape().Rank() == 0 {
		return errs.Invalid("respond_vec: ret_buffer: a scalar has no rows to cut")
	}
	var row int64
	for i, id := range a.ids {
		if a.like[i].Shape().Rank() == 0 || !a.like[i].DType().Valid() {
			return errs.Invalid("respond_vec: tensor %d has no rows to count", i)
		}
		n := a.like[i].Shape().Dim(0)
		if n > a.rows.Shape().Dim(0)-row {
			return tooFewRows(a.rows.Shape().Dim(0), a.like)
		}
		slice, err := a.rows.Slice(row, row+n)
		if err != nil {
			return err
		}
		row += n
		if err := d.claim(c, id); err != nil {
			return err
		}
		if err := c.messages[i].addRows(c.requests[i], &slice); err != nil {
			return err
		}
	}
	return nil
}

// tooFewRows says how many rows all requests need together.
func tooFewRows(have int64, like []tensor.Tensor) error {
	want := int64(0)
	for i := range like {
		if like[i].Shape().Rank() > 0 {
			want += like[i].Shape().Dim(0)
		}
	}
	return errs.Invalid("respond_vec: ret_buffer: it has too few rows (got %d, want %d): give the rows of all %d requests, or answer them one by one with respond",
		have, want, len(like))
}

// addRows cuts a slice by the row counts of the pulls of r.
func (m *message) addRows(r *requestSlot, slice *tensor.Tensor) error {
	if len(r.pulls) == 1 {
		return m.addAnswer(r, 0, slice)
	}
	var row int64
	have := slice.Shape().Dim(0)
	for i := range r.pulls {
		p := &r.pulls[i]
		if p.Shape.Rank() == 0 {
			return errs.Invalid("respond_vec: the pull of key %d is a scalar and cannot be cut from rows", p.Key)
		}
		n := p.Shape.Dim(0)
		if n > have-row {
			return errs.Invalid("respond_vec: the pull of key %d has %d rows, and its slice of %d rows has %d left", p.Key, n, have, have-row)
		}
		part, err := slice.Slice(row, row+n)
		if err != nil {
			return err
		}
		row += n
		if err := m.addAnswer(r, i, &part); err != nil {
			return err
		}
	}
	if row != have {
		return errs.Invalid("respond_vec: a slice of %d rows for pulls of %d together", have, row)
	}
	return nil
}

// addAnswer adds the answer to pull i of r, and retains it until the message is recycled.
func (m *message) addAnswer(r *requestSlot, i int, t *tensor.Tensor) error {
	p := &r.pulls[i]
	if err := p.check(t); err != nil {
		return err
	}
	inPlace, err := r.isInPlace(i, t)
	if err != nil {
		return err
	}
	if !inPlace {
		if err := t.Retain(); err != nil {
			return unusable(p, err)
		}
	}
	m.answers = append(m.answers, answer{tensor: *t, inPlace: inPlace})
	return nil
}

// check refuses a tensor that does not fit the pull.
func (p *Pull) check(t *tensor.Tensor) error {
	if err := t.Check(); err != nil {
		return unusable(p, err)
	}
	n := int64(t.Len())
	switch {
	case n == p.Bytes, n < p.Bytes && p.Variable:
		return nil
	case n < p.Bytes:
		return errs.Invalid("respond: the tensor for the pull of key %d is too small (got %d bytes, want %d): answer the pull whole, or let the worker mark it variable", p.Key, n, p.Bytes)
	}
	return errs.Invalid("respond: the tensor for the pull of key %d is too large (got %d bytes, want at most %d)", p.Key, n, p.Bytes)
}

func unusable(p *Pull, err error) error {
	return fmt.Errorf("respond: the tensor for the pull of key %d cannot be used: %w", p.Key, err)
}

// claim gives the request with this ID to the call. Under Server.mu.
func (d *responder) claim(c *respondCall, id RequestID) error {
	s := d.s
	r := s.requests.find(id)
	if r == nil {
		return fmt.Errorf("respond: handler %#x names no unanswered request: it was answered before, or never given: %w", uint64(id), stepvan.ErrStale)
	}
	if s.closed && r.state != requestAnswering && r.state != requestClosing {
		if m := s.requests.recycle(r); m != nil {
			c.release = append(c.release, m)
		}
		return errClosed("respond")
	}
	if !r.on(eventRespond) {
		return fmt.Errorf("respond: handler %#x is being answered already: %w", uint64(id), stepvan.ErrStale)
	}
	c.requests = append(c.requests, r)
	c.messages = append(c.messages, s.messages.take(r.from))
	return nil
}
