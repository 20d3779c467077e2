package link

// lose ends s: everything unfinished fails, the handlers learn of it. Driver only; idempotent.
func (s *Session) lose(err error) {
	var done lane
	s.mu.Lock()
	if s.state == stateLost {
		s.mu.Unlock()
		return
	}
	s.state, s.err = stateLost, err
	s.abandonLanes(&done)
	s.abandonFrames(&done)
	s.noteBacklog()
	if s.grace != nil {
		s.grace.Stop() // it would keep the whole node in memory
	}
	s.mu.Unlock()
	s.gone = true
	if s.first.Load() {
		s.node.leads.Add(-1)
	}
	s.settleDown()
	s.node.log.Debug().Str("van", s.caps.Name).Str("peer", s.String()).Bool("dialled", s.dialled).AnErr("reason", err).Msg("session lost")
	if s.patience != nil {
		s.patience.Stop()
	}
	if s.node.backlogs.Load() == 0 {
		s.node.engine.ClearStuck() // what called the driver because of s is over
	}
	s.heirs = s.greeted
	s.node.forget(s, s.granter != nil && s.heirs > 0)
	finish(done, err)
	s.abortInbound(err)
	for _, h := range s.node.handlers {
		if h != nil && s.greeted > 0 {
			s.greeted--
			h.Lost(s, err)
		}
	}
	if s.granter == nil {
		s.detach()
	}
	s.node.engine.Set(&s.ready)
}

// abandonLanes collects what was never wholly framed. Messages of which the van
// still holds a frame follow with its completion. mu is held.
func (s *Session) abandonLanes(done *lane) {
	for c := range s.lanes {
		for l := &s.lanes[c]; l.head != nil; {
			if o := l.pop(); o.inflight == 0 {
				done.push(o)
			}
		}
	}
	s.filled, s.pending, s.exposed = 0, 0, 0
}

// abandonFrames collects what was sent and not acknowledged. mu is held.
func (s *Session) abandonFrames(done *lane) {
	for s.unacked.head != nil {
		f := s.unacked.pop()
		if f.last && f.out.inflight == 0 {
			done.push(f.out)
		}
		if f.sent {
			s.dropFrame(f)
		}
	}
}

func (s *Session) abortInbound(err error) {
	for c := range s.incoming {
		if m := s.writing[c]; m != nil {
			s.writing[c] = nil
			s.node.recycle(m)
		}
		for q := &s.incoming[c]; q.head != nil; {
			m := q.head
			q.pop()
			s.node.handlers[c].Abort(m, err)
			s.node.recycle(m)
		}
	}
}
