package worker

import "github.com/stepvan/stepvan/link"

// Fail ends the work with all servers: what is in flight fails with cause, and so does
// every later request. It is for a loss that concerns the whole cluster. Any goroutine.
func (w *Worker) Fail(cause error) {
	w.mu.Lock()
	sessions := make([]*link.Session, 0, len(w.sessions))
	for s := range w.sessions {
		sessions = append(sessions, s)
	}
	w.mu.Unlock()
	for _, s := range sessions {
		w.lose(s, cause)
	}
}
