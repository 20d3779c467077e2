package tensor

// Stats is what an allocator holds and has done.
type Stats struct {
	Arenas    int
	HugeBytes int64  // of HeldBytes, in huge pages
	HeldBytes int64  // taken from the system
	UsedBytes int64  // in regions that are in use, rounding included
	IdleBytes int64  // kept by the pool
	Regions   int    // in use
	Idle      int    // kept by the pool
	Gets      uint64 // calls of Get
	Hits      uint64 // of Gets, those that the pool could answer
	Misuses   uint64 // superfluous calls of Release and Put: each is a mistake of the program
}

// Stats returns the counters. It takes the allocator's locks, and is not for the hot path.
func (a *Allocator) Stats() Stats {
	s := Stats{IdleBytes: a.idle.Load(), Misuses: a.misuses.Load()}
	for i := range a.classes {
		c := &a.classes[i]
		c.mu.Lock()
		s.Gets += c.gets
		s.Hits += c.hits
		s.Idle += len(c.idle)
		c.mu.Unlock()
	}
	a.arenas.count(&s)
	for r := range a.regions.open {
		s.Regions++
		s.UsedBytes += r.span.n
	}
	return s
}

func (l *arenaList) count(s *Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Arenas, s.HeldBytes = len(l.arenas), l.held
	for _, ar := range l.arenas {
		if ar.mem.Huge() {
			s.HugeBytes += ar.size
		}
	}
}
