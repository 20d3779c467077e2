package server

import (
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// RespondVec answers several requests with rows of one tensor. ret is cut along
// dimension 0 into consecutive slices: slice i has as many rows as like[i], and
// answers handlers[i]. With several pulls per request, slice i is cut further, in
// pull order, by the pulls' own row counts. Surplus rows of ret are ignored.
//
// It is all or nothing, with the errors of Respond: lists of unequal length, too
// few rows, rows that do not fit a pull, or a handler that occurs twice is an error, and
// nothing was sent. The Response is done when all workers have acknowledged.
func (s *Server) RespondVec(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (Response, error) {
	at := trace.Now()
	s.mu.Lock()
	y := s.begin()
	return s.end(y, at, s.cut(y, ret, like, handlers))
}

// cut gives every handler its rows.
func (s *Server) cut(y *reply, ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) error {
	if len(like) != len(handlers) {
		return errs.Invalid("respond_vec: %d tensors for %d handlers; give one each", len(like), len(handlers))
	}
	if len(handlers) == 0 {
		return errs.Invalid("respond_vec: no handlers to answer")
	}
	if err := ret.Check(); err != nil {
		return err
	}
	if ret.Shape().Rank() == 0 {
		return errs.Invalid("respond_vec: a scalar has no rows to cut")
	}
	var row int64
	for i, h := range handlers {
		if like[i].Shape().Rank() == 0 || !like[i].DType().Valid() {
			return errs.Invalid("respond_vec: tensor %d has no rows to count", i)
		}
		n := like[i].Shape().Dim(0)
		if n > ret.Shape().Dim(0)-row {
			return tooFewRows(ret.Shape().Dim(0), like)
		}
		slice, err := ret.Slice(row, row+n)
		if err != nil {
			return err
		}
		row += n
		if err := s.add(y, h); err != nil {
			return err
		}
		if err := y.letters[i].loadRows(y.requests[i], slice); err != nil {
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
	return errs.Invalid("respond_vec: ret_buffer: it has too few rows (got %d, want %d): each of the %d requests is answered with the rows behind those of the one before, so give a buffer with the rows of all of them, or answer them one by one with respond",
		have, want, len(like))
}

// loadRows cuts a slice by the row counts of the pulls.
func (l *letter) loadRows(in *incoming, slice tensor.Tensor) error {
	if len(in.pulls) == 1 {
		return l.loadOne(in, 0, &slice)
	}
	var row int64
	have := slice.Shape().Dim(0)
	for i := range in.pulls {
		p := &in.pulls[i]
		if p.Shape.Rank() == 0 {
			return errs.Invalid("respond_vec: the pull of key %d is a scalar and cannot be cut from rows", p.Key)
		}
		n := p.Shape.Dim(0)
		if n > have-row {
			return errs.Invalid("respond_vec: the pull of key %d has %d rows, and %d of its slice's %d are left", p.Key, n, have-row, have)
		}
		part, err := slice.Slice(row, row+n)
		if err != nil {
			return err
		}
		row += n
		if err := l.loadOne(in, i, &part); err != nil {
			return err
		}
	}
	if row != have {
		return errs.Invalid("respond_vec: a slice of %d rows for pulls of %d together", have, row)
	}
	return nil
}
