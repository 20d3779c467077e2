package server

import (
	"fmt"
	"time"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/trace"
)

// AnswerPushes answers the workers of all requests that GetBatch has handed out and that have no pulls: the program is
// about to stop, and workers wait for those answers. The requests stay the program's, and a Respond to them has no
// further effect. It does nothing while a goroutine is in GetBatch, which goes on serving then. Any goroutine.
func (s *Server) AnswerPushes() {
	at := trace.Now()
	s.mu.Lock()
	var to []*remote
	for _, in := range s.requests {
		if s.collecting || in.stage != handed || in.early || len(in.pulls) > 0 || in.from.session != in.session {
			continue
		}
		in.early = true
		l := s.newLetter(in.from)
		s.encode(l, in, at)
		in.from.outbox = append(in.from.outbox, l)
		to = append(to, in.from)
	}
	s.mu.Unlock()
	for _, r := range to {
		s.pump(r)
	}
}

const (
	// absentLook is how often it is looked whether the program of a server that has begun to stop still serves.
	absentLook = 250 * time.Millisecond
	// absentLooks is after how many looks in a row that found nobody the server takes no more requests.
	absentLooks = 4
)

// BeginStop is for a server whose program is about to wait for the rest of the cluster, and so for workers that may wait
// for this server. Requests without pulls that the program has taken are answered (AnswerPushes). Once nobody has been
// in GetBatch, or has held an unanswered request, for a second, requests that nobody has taken are refused. A program
// that goes on serving from another goroutine is not concerned, and a later GetBatch ends the refusing. Any goroutine, once.
func (s *Server) BeginStop() {
	s.AnswerPushes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.watch = time.AfterFunc(absentLook, s.lookForProgram)
	}
}

// lookForProgram is one look. The timer's goroutine.
func (s *Server) lookForProgram() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	if s.attended() {
		s.absent = 0
	} else {
		s.absent = min(s.absent+1, absentLooks)
	}
	var f failedRound
	if s.abandoned() {
		s.refuseQueued(&f)
	}
	s.watch.Reset(absentLook)
	s.mu.Unlock()
	s.endRound(&f)
}

// attended reports whether somebody waits for requests, or has one to answer. Under s.mu.
func (s *Server) attended() bool {
	if s.collecting {
		return true
	}
	for _, in := range s.requests {
		if in.stage == answering || in.stage == handed && !in.early {
			return true
		}
	}
	return false
}

// abandoned reports whether the program has stopped, and serves nobody any more. Under s.mu.
func (s *Server) abandoned() bool { return s.absent >= absentLooks }

// errAbandoned is what an abandoned server refuses requests with.
func (s *Server) errAbandoned() error {
	return fmt.Errorf("push_pull: server %d has stopped and takes no more requests", s.rank)
}

// refuseQueued refuses what nobody has taken. Under s.mu; endRound follows without it.
func (s *Server) refuseQueued(f *failedRound) {
	for _, r := range s.workers {
		for r.first != nil {
			s.refuseNext(f, r, s.errAbandoned())
		}
	}
}

// errEarly is why nothing is sent for a respond to a request that AnswerPushes has answered.
var errEarly = fmt.Errorf("the server has begun to stop, and answered it by that: %w", link.ErrLeft)

// unreachable is why no answer can be sent to the request, or need be; nil when one can.
func (in *incoming) unreachable() error {
	if in.early {
		return errEarly
	}
	return in.session.Err()
}
