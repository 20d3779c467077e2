package worker

import "github.com/stepvan/stepvan/internal/link"

// ResponsesOf is what the link calls for the responses to w.
func ResponsesOf(w *Worker) link.Handler { return responses{sessionEvents{w: w}} }

// Lose does what w does at the first failed message of a session, before the link aborts what it was receiving.
func Lose(w *Worker, s *link.Session, err error) { w.lose(s, err) }

// FailRequests is Fail, but w takes further exchanges after it.
func FailRequests(w *Worker, cause error) {
	w.Fail(cause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = nil
}
