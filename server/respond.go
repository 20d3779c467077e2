package server

import (
	"fmt"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// Respond answers the pulls of one request, in their order, and ends the
// request: its handler is stale, its chunks may be written again. A request
// without pulls is answered with no tensors, which ends it at the worker and frees its keys. When the worker has left
// meanwhile, that has no effect and is no error.
//
// It returns at once; the tensors are borrowed until the Response is done: to fill them again before that, use
// RespondCopy. A worker
// that is gone does not make it fail: the Response tells. On an error nothing was sent and
// the request is still to be answered:
//
//   - stepvan.ErrInvalid: count or sizes do not fit the pulls. A tensor smaller than its
//     pull fits only where the pull is Variable;
//   - stepvan.ErrStale: the handler was answered before, or never given;
//   - stepvan.ErrWouldBlock: the queue to the worker is full; wait for an earlier
//     Response and try again;
//   - stepvan.ErrClosed: the server was stopped, or a tensor's region is closed.
//
// Any goroutine. Budget: 0 allocations in the steady state, one message.
func (s *Server) Respond(tensors []tensor.Tensor, h RequestID) (Response, error) {
	at := trace.Now()
	s.mu.Lock()
	y := s.begin()
	err := s.add(y, h)
	if err == nil {
		err = y.letters[0].load(y.requests[0], tensors)
	}
	return s.end(y, at, err)
}

// load takes the tensors of one answer, and refuses those that do not fit.
func (l *letter) load(in *incoming, tensors []tensor.Tensor) error {
	if len(tensors) != len(in.pulls) {
		return errs.Invalid("respond: %d tensors for the %d pulls of %s; give one per pull", len(tensors), len(in.pulls), in.from.name)
	}
	for i := range tensors {
		if err := l.loadOne(in, i, &tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

// loadOne takes the answer to pull i.
func (l *letter) loadOne(in *incoming, i int, t *tensor.Tensor) error {
	p := &in.pulls[i]
	if err := p.check(t); err != nil {
		return err
	}
	there, err := in.offered(i, t)
	if err != nil {
		return err
	}
	if !there {
		if err := t.Retain(); err != nil {
			return unusable(p, err)
		}
	}
	l.answers = append(l.answers, answer{tensor: *t, there: there})
	return nil
}

// check refuses a tensor that does not fit.
func (p *Pull) check(t *tensor.Tensor) error {
	if err := t.Check(); err != nil {
		return unusable(p, err)
	}
	n := int64(t.Len())
	if n == p.Bytes || n < p.Bytes && p.Variable {
		return nil
	}
	if n < p.Bytes {
		return errs.Invalid("respond: %d bytes for the pull of key %d, which has %d; answer it whole, or let the worker mark it variable", n, p.Key, p.Bytes)
	}
	return errs.Invalid("respond: %d bytes for the pull of key %d, which has room for %d", n, p.Key, p.Bytes)
}

func unusable(p *Pull, err error) error {
	return fmt.Errorf("respond: the tensor for the pull of key %d cannot be used: %w", p.Key, err)
}
