package tensor

// Stats are the counters of an [Allocator]: what it holds, and what it has done.
type Stats struct {
	Arenas    int    // memory files
	HugeBytes int64  // those of HeldBytes that lie in huge pages
	HeldBytes int64  // taken from the system
	UsedBytes int64  // in regions that are in use, with rounding
	IdleBytes int64  // kept by the pool
	Regions   int    // in use
	Idle      int    // kept by the pool
	Gets      uint64 // calls of Get
	Hits      uint64 // calls of Get that got memory of the pool
	Misuses   uint64 // calls of Release and Put without a hold or region to end: each is a mistake of the program
}

// Stats returns the counters. It takes the allocator's locks, so it is not for the hot path.
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

// Limit returns Options.MaxBytes: 0 where the allocator has no limit.
func (a *Allocator) Limit() int64 { return a.opt.MaxBytes }

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
