package server

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
)

var errBusy = fmt.Errorf("another goroutine waits for a batch already; let one goroutine call it: %w", stepvan.ErrBusy)

// outlook returns how many workers must be ready for another look, or an error
// when need of them can never be as long as some that are gone stay away. Under s.mu.
func (s *Server) outlook(need int) (int, error) {
	lost, left, able := s.census()
	if able >= need {
		return need, nil
	}
	if able == 0 {
		return 0, s.deserted(lost, left, need)
	}
	// A lost worker is an error at once. One that left is in order while nobody waits for it.
	who := lost
	if who == nil && s.ready > 0 {
		who = left
	}
	if who == nil {
		return 1, nil
	}
	return 0, who.failure("get_batch", fmt.Errorf("a batch needs requests of %d workers and %d remain; the other policies serve those: %w", need, able, who.gone))
}

// census finds the first workers without a request that were lost and that have left, and
// counts those that have one or may send one.
func (s *Server) census() (lost, left *remote, able int) {
	for _, r := range s.workers {
		switch {
		case r.first != nil || r.gone == nil:
			able++
		case r.left:
			if left == nil {
				left = r
			}
		case lost == nil:
			lost = r
		}
	}
	return lost, left, able
}

// deserted is the end: nobody is left to send anything. It is in order when the last of
// those who could be missed have left. A death that nobody may take for an orderly end is
// one that a batch of need workers could not do without, or that left nobody.
func (s *Server) deserted(lost, left *remote, need int) error {
	if lost != nil && (left == nil || need > 1) {
		return lost.failure("get_batch", fmt.Errorf("every paired worker is gone: %w", lost.gone))
	}
	return errs.Closed("get_batch: every paired worker is gone, so no request will follow")
}
