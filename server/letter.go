package server

import (
	"errors"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/handles"
	"github.com/stepvan/stepvan/internal/reuse"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
)

// letter is one message to a worker: a response, a refusal or an announcement.
// It is recycled when the worker has acknowledged it or is lost.
type letter struct {
	next    *letter // in the list of free ones
	out     link.Outbound
	meta    []byte
	payload [][]byte
	answers []answer
	spare   *tensor.Region // for what the link does not take at once; nil: the answers are borrowed until acknowledged
	chunks  []*chunk       // of an announcement

	to     *remote
	rec    *handles.Record[response] // of a response
	notice *notice                   // of an announcement

	// For the trace of a response.
	stamps    [4]int64
	id, key   uint64
	bytesOut  int64
	bytesBack int64
}

// answer is one tensor of a response, held until acknowledged.
type answer struct {
	tensor tensor.Tensor
	there  bool // it is in the worker's memory, and neither sent nor held

	summed bool // with Options.CheckBorrowed; then sum is the checksum of the answer to the pull of key
	sum    uint64
	key    tensor.Key
}

// newLetter returns an empty letter. Under s.mu.
func (s *Server) newLetter(to *remote) *letter {
	l := s.freeLetters
	if l == nil {
		l = new(letter)
		s.letters++
	} else {
		s.freeLetters = l.next
	}
	l.next, l.to = nil, to
	return l
}

// freeLetter recycles l. Under s.mu.
func (s *Server) freeLetter(l *letter) {
	l.release()
	if l.spare != nil {
		s.opt.Memory.Put(l.spare)
		l.spare = nil
	}
	l.meta, l.payload, l.chunks = l.meta[:0], reuse.Slice(l.payload), reuse.Slice(l.chunks)
	l.to, l.rec, l.notice = nil, nil, nil
	l.next, s.freeLetters = s.freeLetters, l
}

// release lets go of the tensors. Those that have memory to spare were the reply's.
func (l *letter) release() {
	for i := range l.answers {
		if a := &l.answers[i]; !a.there && l.spare == nil {
			a.tensor.Release()
		}
	}
	l.answers = reuse.Slice(l.answers)
}

// missed reports whether somebody misses a response that failed for why. A worker that has left does not miss the answer
// to what it only pushed.
func (l *letter) missed(why error) bool { return len(l.answers) > 0 || !errors.Is(why, link.ErrLeft) }

// Done implements link.Completer: the worker has acknowledged the message, or it failed.
func (s *Server) Done(o *link.Outbound, err error) {
	l := o.User.(*letter)
	s.mu.Lock()
	to := l.to
	rec, n := l.rec, l.notice
	switch {
	case rec == nil:
	case err != nil && l.missed(err):
		rec.Value.fail(to.failure("respond", err))
	case err == nil && s.opt.CheckBorrowed:
		s.checkSums(l)
	}
	if n != nil {
		n.heard(to)
	}
	s.trace(l, err)
	s.freeLetter(l)
	if rec != nil {
		s.settle(rec)
	}
	more := len(to.outbox) > 0
	s.mu.Unlock()
	if n != nil {
		n.settle(s)
	}
	if more {
		s.pump(to)
	}
}

// settle counts one of the messages of a response, or the call that made them. Under s.mu.
func (s *Server) settle(rec *handles.Record[response]) {
	if rec.Value.settle() {
		s.responses.Finish(rec, rec.Value.err)
	}
}

// trace hands the server's timestamps of a response to the ring. Under s.mu.
func (s *Server) trace(l *letter, err error) {
	if s.opt.Trace == nil || l.rec == nil || err != nil {
		return
	}
	e := trace.Entry{
		RequestID: l.id, Key: l.key, BytesOut: l.bytesOut, BytesBack: l.bytesBack,
		Worker: int32(l.to.rank), Server: int32(s.rank),
	}
	copy(e.Stamps[trace.RequestPostRecv:], l.stamps[:])
	s.opt.Trace.Record(e)
}
