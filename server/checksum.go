package server

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/tensor"
)

// recordChecksums notes the checksums of the borrowed answers, for Options.CheckBorrowed. It leaves out an answer in
// memory of the request's own pushes: the worker may write there as soon as it has the answer. Under Server.mu.
func (m *message) recordChecksums(r *requestSlot) {
	for i := range m.answers {
		a := &m.answers[i]
		if a.inPlace || a.tensor.Len() == 0 || r.pushedTo(&a.tensor) {
			continue
		}
		a.key, a.checksum, a.checked = r.pulls[i].Key, xxhash.Sum64(a.tensor.Bytes()), true
	}
}

// pushedTo reports whether t shares memory with a push.
func (r *requestSlot) pushedTo(t *tensor.Tensor) bool {
	return slices.ContainsFunc(r.pushes, func(push tensor.Tensor) bool { return overlap(t.Bytes(), push.Bytes()) })
}

// verifyChecksums fails the response when an answer has changed. Under Server.mu.
func (m *message) verifyChecksums(s *Server) {
	for i := range m.answers {
		a := &m.answers[i]
		if !a.checked {
			continue
		}
		sum := xxhash.Sum64(a.tensor.Bytes())
		if sum == a.checksum {
			continue
		}
		err := &stepvan.OpError{Op: "respond", Peer: m.to.name, Err: errs.Invalid(
			"the tensor for the pull of key %d: it was changed before its response was done (got checksum %016x, want %016x). The worker may have received either. Wait for the response before you write to it, move it or free it",
			a.key, sum, a.checksum)}
		m.record.Value.fail(err)
		s.opt.Log.Error().Err(err).Msg("a borrowed tensor was changed")
	}
}
