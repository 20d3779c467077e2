//go:build cgo

package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/slots"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// requests are the unanswered requests that C has, by number: 0 allocations in the steady state.
type requests struct {
	mu  sync.Mutex
	all slots.Table[pending]
}

// pending is one unanswered request. Guarded by requests.mu; the call that answers it owns its fields meanwhile.
type pending struct {
	ps.Request
	number    slots.ID
	answering bool
	known     []tensor.Tensor // tensors that C got, to be recognised in answers
	copies    []*window       // of pushes on the Go heap
}

// add gives a request a number.
func (q *requests) add(r ps.Request) *pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	number, p := q.all.Take()
	p.number, p.Request = number, r
	return p
}

// forget ends numbers that C has not seen.
func (q *requests) forget(all []cRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range all {
		number := slots.ID(all[i].handler)
		if p := q.all.Find(number); p != nil && !p.answering { // else somebody has ended it, or is about to
			p.close()
			q.all.Free(number)
		}
	}
}

// find returns an unanswered request. Under mu.
func (q *requests) find(number uint64) (*pending, error) {
	switch p := q.all.Find(slots.ID(number)); {
	case p == nil:
		return nil, &coded{codeStale, fmt.Errorf("handler %d names no request, or an answered one", number)}
	case p.answering:
		return nil, &coded{codeBusy, fmt.Errorf("request %d is being answered by another call, or is named twice", number)}
	default:
		return p, nil
	}
}

// visit calls f with a request, which stays unanswered meanwhile.
func (q *requests) visit(number uint64, f func(*pending) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, err := q.find(number)
	if err != nil {
		return err
	}
	return f(p)
}

// claim reserves requests for the caller to answer, all or none.
func (q *requests) claim(numbers []uint64, dst []*pending) ([]*pending, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, number := range numbers {
		p, err := q.find(number)
		if err != nil {
			for _, claimed := range dst {
				claimed.answering = false
			}
			return dst[:0], err
		}
		p.answering = true
		dst = append(dst, p)
	}
	return dst, nil
}

// settle ends a claim.
func (q *requests) settle(all []*pending, answered bool) {
	for _, p := range all {
		if answered {
			p.close()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range all {
		p.answering = false
		if answered {
			q.all.Free(p.number)
		}
	}
}

// close releases what the request had. Only the call that answers it may call this.
func (p *pending) close() {
	for _, w := range p.copies {
		w.Shut()
	}
	clear(p.copies)
	clear(p.known)
	p.copies, p.known, p.Request = p.copies[:0], p.known[:0], ps.Request{}
}

// releaseAll makes a stopped server release the memory of unanswered requests.
func (q *requests) releaseAll(s *ps.Server) {
	q.mu.Lock()
	var left []*pending
	for _, p := range q.all.All() {
		if !p.answering {
			p.answering = true
			left = append(left, p)
		}
	}
	q.mu.Unlock()
	for _, p := range left {
		_, _ = s.Respond(nil, p.ID) // refused, since the server was stopped
	}
	q.settle(left, true)
}

// writeTensor writes a tensor of the request for C. The request then recognises the tensor in an answer.
func (p *pending) writeTensor(c *cTensor, t *tensor.Tensor, flags uint16) error {
	if t.Region() == nil && t.Len() > 0 {
		heap, err := p.copied(t)
		if err != nil {
			return err
		}
		t = &heap
	}
	describe(c, t, flags)
	p.known = append(p.known, *t)
	return nil
}

// writeKnown is writeTensor for a tensor that C may already have.
func (p *pending) writeKnown(c *cTensor, t *tensor.Tensor, flags uint16) error {
	for i := range p.known {
		if k := &p.known[i]; k.Region() == t.Region() && k.Offset() == t.Offset() && k.Len() == t.Len() {
			describe(c, t, flags)
			return nil
		}
	}
	return p.writeTensor(c, t, flags)
}

// copied copies a tensor on the Go heap to memory that C may see.
func (p *pending) copied(t *tensor.Tensor) (tensor.Tensor, error) {
	w, r := foreign.copied(t.Bytes())
	if w == nil {
		return tensor.Tensor{}, &coded{codeWouldBlock, fmt.Errorf("no memory for %d bytes of a push: answer requests and try again", t.Len())}
	}
	p.copies = append(p.copies, w)
	return tensor.FromRegion(r, 0, t.DType(), t.Shape())
}

// ended reports whether the request is gone at the server.
func (p *pending) ended() bool {
	_, err := p.In(-1)
	return errors.Is(err, stepvan.ErrStale)
}
