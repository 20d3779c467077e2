package server

import (
	"cmp"
	"errors"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/bulk"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// RespondCopy is Respond for programs that use their tensors again at once: with borrowed false the tensors are the
// caller's again when it returns. The server writes an answer into the worker's memory where it reaches that (see
// Request.Out). Of others it copies to pooled memory what the van does not take at once. borrowed is true when the
// pool had no room: then the tensors are borrowed until the Response is done, and the caller waits for that before it
// changes them.
//
// The errors are those of Respond, but for stepvan.ErrWouldBlock: what a full queue does not take goes as soon as it has room.
//
// Any goroutine; it never waits. Budget: 0 allocations in the steady state, one message, one copy where the worker's memory
// is reached, at most one copy besides those of the van where it is not.
func (s *Server) RespondCopy(tensors []tensor.Tensor, h RequestID) (r Response, borrowed bool, err error) {
	at := trace.Now()
	s.mu.Lock()
	y := s.begin()
	y.copies = true
	err = s.add(y, h)
	if err == nil {
		err = y.letters[0].load(y.requests[0], tensors)
	}
	if err == nil {
		borrowed = s.place(y)
	}
	r, err = s.end(y, at, err)
	return r, borrowed && err == nil, err
}

// RespondVecCopy is RespondVec with what RespondCopy says of the tensor.
func (s *Server) RespondVecCopy(ret tensor.Tensor, like []tensor.Tensor, handlers []RequestID) (r Response, borrowed bool, err error) {
	at := trace.Now()
	s.mu.Lock()
	y := s.begin()
	y.copies = true
	err = s.cut(y, ret, like, handlers)
	if err == nil {
		borrowed = s.place(y)
	}
	r, err = s.end(y, at, err)
	return r, borrowed && err == nil, err
}

// place writes answers into the memory of their workers, and finds memory to spare for the others. borrowed reports
// whether there was none for some. Under s.mu, which is free meanwhile when that may take long.
func (s *Server) place(y *reply) (borrowed bool) {
	if y.bytes() > link.LockedBytes {
		s.mu.Unlock()
		defer s.mu.Lock()
	}
	for i, l := range y.letters {
		rest := l.write(y.requests[i])
		if rest == 0 {
			continue
		}
		r, err := s.opt.Memory.Get(int(rest))
		if err != nil {
			borrowed = true
			continue
		}
		l.spare = r
		for k := range l.answers {
			if a := &l.answers[k]; !a.there {
				y.sources = append(y.sources, a.tensor)
			}
		}
	}
	return borrowed
}

// bytes is what the answers have that are not in the memory of their workers.
func (y *reply) bytes() (n int64) {
	for _, l := range y.letters {
		for i := range l.answers {
			if a := &l.answers[i]; !a.there {
				n += int64(a.tensor.Len())
			}
		}
	}
	return n
}

// write copies answers into the worker's memory where that is reached, and returns the bytes of the others.
func (l *letter) write(in *incoming) (rest int64) {
	for i := range l.answers {
		a := &l.answers[i]
		if a.there {
			continue
		}
		to := in.reach(i)
		if to == nil {
			rest += int64(a.tensor.Len())
			continue
		}
		bulk.Copy(to, a.tensor.Bytes())
		a.tensor.Release()
		a.there = true
	}
	return rest
}

// park keeps the letters that a full queue has refused in the outboxes of their workers. Under s.mu.
func (s *Server) park(y *reply) {
	for i, l := range y.letters {
		session := y.requests[i].session
		switch {
		case y.skips(l):
			continue
		case l.to.session != session:
			y.skipped = append(y.skipped, skipped{l, cmp.Or(l.to.gone, session.Err(), stepvan.ErrPeerLost)})
			continue
		}
		if l.spare != nil {
			l.shelter()
		}
		l.to.outbox = append(l.to.outbox, l)
		y.parked = append(y.parked, l.to)
	}
}

// shelter moves the payload to the memory to spare.
func (l *letter) shelter() {
	mem := l.spare.Bytes()
	to := mem
	for _, b := range l.payload {
		to = to[bulk.Copy(to, b):]
	}
	clear(l.payload)
	l.payload = append(l.payload[:0], mem[:len(mem)-len(to)])
	l.out.Payload, l.out.Spare = l.payload, nil
}

// skips reports whether the worker of l is gone.
func (y *reply) skips(l *letter) bool {
	for i := range y.skipped {
		if y.skipped[i].letter == l {
			return true
		}
	}
	return false
}

// canPark reports whether a refusal of the link is no reason to leave the requests unanswered.
func (y *reply) canPark(err error) bool { return y.copies && errors.Is(err, stepvan.ErrWouldBlock) }
