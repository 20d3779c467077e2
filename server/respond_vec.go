package server

import (
	"fmt"

	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

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

// RespondVecCopy is [Server.RespondVec] with the copies of [Server.RespondCopy].
func (s *Server) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, ids []RequestID) (r Response, borrowed bool, err error) {
	return s.responder.respond(&answers{rows: &ret, like: like, ids: ids}, true)
}

// prepareRows is prepare for RespondVec.
func (d *responder) prepareRows(c *respondCall, a *answers) error {
	if len(a.like) != len(a.ids) {
		return errs.Invalid("respond_vec: tensors that count the rows: there must be one per request (got %d, want %d)", len(a.like), len(a.ids))
	}
	if len(a.ids) == 0 {
		return errs.Invalid("respond_vec: no requests to answer")
	}
	if err := device.Check(a.rows); err != nil {
		return fmt.Errorf("respond_vec: ret_buffer: it cannot be used: %w", err)
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
