package server

import (
	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// sum notes what the borrowed answers of l are, for Options.CheckBorrowed. An answer in memory of the request's own pushes is
// left out: that is the worker's to fill again as soon as it has the answer. Under Server.mu.
func (s *Server) sum(l *letter, in *incoming) {
	if !s.opt.CheckBorrowed || l.spare != nil {
		return
	}
	for i := range l.answers {
		a := &l.answers[i]
		if a.there || a.tensor.Len() == 0 || in.pushedTo(&a.tensor) {
			continue
		}
		a.key, a.sum, a.summed = in.pulls[i].Key, xxhash.Sum64(a.tensor.Bytes()), true
	}
}

// pushedTo reports whether t shares memory with a push.
func (in *incoming) pushedTo(t *tensor.Tensor) bool {
	lo, hi := spanOf(t)
	for i := range in.pushes {
		from, to := spanOf(&in.pushes[i])
		if lo < to && from < hi {
			return true
		}
	}
	return false
}

func spanOf(t *tensor.Tensor) (from, to uintptr) {
	b := t.Bytes()
	return start(b), start(b) + uintptr(len(b))
}

// checkSums fails the response when an answer is not what it was. Under Server.mu.
func (s *Server) checkSums(l *letter) {
	for i := range l.answers {
		a := &l.answers[i]
		if !a.summed {
			continue
		}
		is := xxhash.Sum64(a.tensor.Bytes())
		if is == a.sum {
			continue
		}
		err := &stepvan.OpError{Op: "respond", Peer: l.to.name, Err: errs.Invalid(
			"the tensor for the pull of key %d: it was changed before its response was done (got checksum %016x, want %016x), and the worker may have received either: wait for the response before you write to it, move it or free it",
			a.key, is, a.sum)}
		l.rec.Value.fail(err)
		s.opt.Log.Error().Err(err).Msg("a borrowed tensor was changed")
	}
}
