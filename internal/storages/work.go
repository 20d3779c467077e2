package storages

import "github.com/stepvan/stepvan/tensor"

// work registers what is due. It is the goroutine of the table.
func (t *Table) work() {
	over := false
	defer func() {
		if !over {
			t.abandon()
		}
	}()
	for {
		s, room := t.next()
		if over = s == nil; over {
			return
		}
		for _, old := range room {
			t.giveUp(old.held, old.own)
			t.settle(old, nil, nil, unseen)
		}
		t.register(s)
	}
}

// abandon ends the waits for the goroutine, since a panic has ended it.
func (t *Table) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.due, t.works = true, nil, false
	for _, s := range t.known {
		if s.state == working {
			s.state = refused
			close(s.over)
		}
	}
}

// next takes the storage that is due, and what must make room for it. Storages that do not fit are passed over. Without
// one that is due it returns nil, and the goroutine ends.
func (t *Table) next() (s *storage, room []*storage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.due) > 0 {
		s, t.due = t.due[0], t.due[1:]
		if s.state != waiting {
			continue // it has ended
		}
		room, fits := t.makeRoom(s.bytes())
		if !fits {
			s.state = unseen // operations use all the others
			t.lines.full(s.bytes(), t.opt.Limit)
			continue
		}
		s.state, s.over = working, make(chan struct{})
		t.pinned += s.bytes()
		if len(room) > 0 {
			t.lines.evicted(len(room), t.opt.Limit)
		}
		return s, room
	}
	t.due, t.works = nil, false
	return nil, nil
}

// makeRoom takes the storages out of the table that were named longest ago, until size more bytes fit. It passes over
// those that an operation uses. If there is not enough room even so, it takes none. Under Table.mu.
// +checklocks:t.mu
func (t *Table) makeRoom(size int64) (room []*storage, fits bool) {
	need := t.pinned + size - t.opt.Limit
	for s := t.uses.oldest; s != nil && need > 0; s = s.newer {
		if !s.memory.Region().Busy() {
			room = append(room, s)
			need -= s.bytes()
		}
	}
	if need > 0 {
		return nil, false
	}
	for _, s := range room {
		t.unlist(s)
		s.state, s.over = working, make(chan struct{})
	}
	return room, true
}

// register registers s, which is in state working.
func (t *Table) register(s *storage) {
	own := tensor.NewWindow(func() {})
	held, err := t.hold(s, own)
	switch {
	case err == nil && held.Registered():
		t.settle(s, held, own, registered)
		return
	case err != nil:
		t.lines.refused(s.bytes(), err)
	default: // no device reaches such memory
		_ = held.Close()
	}
	own.Shut()
	t.settle(s, nil, nil, refused)
}

// hold registers the memory of s under a region of its own.
func (t *Table) hold(s *storage, own *tensor.Window) (Registration, error) {
	if err := s.memory.Retain(); err != nil {
		return nil, err
	}
	defer s.memory.Release()
	mem := s.memory.Bytes()
	x, err := tensor.FromRegion(own.Show(mem), 0, tensor.Uint8, tensor.ShapeOf(int64(len(mem))))
	if err != nil {
		return nil, err
	}
	return t.opt.Register(x)
}

// settle notes what the goroutine has done with s.
func (t *Table) settle(s *storage, held Registration, own *tensor.Window, to state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.held, s.own, s.state = held, own, to
	switch to {
	case registered:
		t.uses.add(s)
	case refused:
		t.pinned -= s.bytes()
	}
	close(s.over)
	s.over = nil
}
