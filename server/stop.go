package server

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/trace"
)

const (
	// idleLook is the time between two looks whether the program of a stopping server still serves.
	idleLook = 250 * time.Millisecond
	// maxIdleLooks is after how many idle looks in a row the server takes no more requests.
	maxIdleLooks = 4
)

// stopWatch watches, once the server has begun to stop, whether the program still serves. Guarded by Server.mu.
type stopWatch struct {
	s         *Server
	idleLooks int // looks in a row that found the program idle
	timer     *time.Timer
}

// AnswerPushes answers all requests without pulls that GetBatch has handed out. The program is about to stop, and
// workers wait for those answers. The program still holds the requests, and its Respond to them has no further effect.
// While a goroutine is in GetBatch, which continues to serve, AnswerPushes does nothing. Any goroutine may call it.
func (s *Server) AnswerPushes() {
	at := trace.Now()
	var later deferredWork
	s.mu.Lock()
	for _, r := range s.requests.slots.All() {
		if s.batches.collecting || r.state != requestTaken || len(r.pulls) > 0 || r.from.session != r.session {
			continue
		}
		r.on(eventAnswerAtStop)
		m := s.messages.take(r.from)
		m.encodeResponse(s, r, at)
		r.from.outbox = append(r.from.outbox, m)
		later.flush = append(later.flush, r.from)
	}
	s.mu.Unlock()
	later.run(s)
}

// BeginStop is for a server whose program waits for the rest of the cluster, and so for workers that may wait for this
// server. It calls [Server.AnswerPushes]. Once the program has been idle for a second, the server refuses the requests
// that nobody has taken. A program is idle when no goroutine is in GetBatch and none holds an unanswered request. So a
// program that serves from another goroutine is not affected. A later GetBatch ends the refusals. Any goroutine may
// call BeginStop, once.
func (s *Server) BeginStop() {
	s.AnswerPushes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.stop.timer = time.AfterFunc(idleLook, s.stop.look)
	}
}

// end ends the looks. Under Server.mu.
func (w *stopWatch) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look is one look, on the timer's goroutine.
func (w *stopWatch) look() {
	var later deferredWork
	w.s.mu.Lock()
	if !w.s.closed {
		if w.idle() {
			w.idleLooks = min(w.idleLooks+1, maxIdleLooks)
		} else {
			w.idleLooks = 0
		}
		if w.over() {
			w.refuseQueued(&later)
		}
		w.timer.Reset(idleLook)
	}
	w.s.mu.Unlock()
	later.run(w.s)
}

// idle reports whether the program waits for no request and has none to answer. Under Server.mu.
func (w *stopWatch) idle() bool {
	if w.s.batches.collecting {
		return false
	}
	for _, r := range w.s.requests.slots.All() {
		if r.state == requestTaken || r.state == requestAnswering || r.state == requestClosing {
			return false
		}
	}
	return true
}

// over reports whether the program serves no more. Under Server.mu.
func (w *stopWatch) over() bool { return w.idleLooks >= maxIdleLooks }

// err is why requests are refused then.
func (w *stopWatch) err() error {
	return fmt.Errorf("push_pull: server %d has stopped and takes no more requests", w.s.rank)
}

// refuseQueued refuses the requests that nobody has taken. Under Server.mu.
func (w *stopWatch) refuseQueued(later *deferredWork) {
	for _, p := range w.s.workers {
		for p.first != nil {
			w.s.batches.refuseNext(p, w.err(), later)
		}
	}
}

// errAnsweredAtStop is why a Respond sends nothing for a request that AnswerPushes has answered.
var errAnsweredAtStop = fmt.Errorf("the server answered it when it began to stop: %w", link.ErrLeft)

// unsendable returns why the request gets no answer from Respond; nil when it gets one.
func (r *requestSlot) unsendable() error {
	if r.answeredAtStop() {
		return errAnsweredAtStop
	}
	return r.session.Err()
}
