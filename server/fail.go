package server

import "github.com/stepvan/stepvan/internal/link"

// Fail ends the work with all workers: GetBatch and what waits for a worker fail with
// cause. It is for a loss that concerns the whole cluster. Any goroutine.
func (s *Server) Fail(cause error) {
	s.mu.Lock()
	sessions := make([]*link.Session, 0, len(s.sessions))
	for l := range s.sessions {
		sessions = append(sessions, l)
	}
	s.mu.Unlock()
	for _, l := range sessions {
		s.lose(l, cause)
	}
}
