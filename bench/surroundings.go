package bench

import "time"

// executeRound runs a round of a series beside the busy program, if the options ask for it, and looks how the quota has
// stopped the nodes.
func (c *coordinator) executeRound(s *series, m *measured) error {
	before, err := c.inside.throttled()
	if err != nil {
		return err
	}
	var failed error
	execute := func() { m.replies, failed = c.execute(command{Verb: s.verb, Count: s.perRound}, s.nodes...) }
	if c.opts.Cores.Busy {
		m.beside = computeDuring(execute)
	} else {
		execute()
	}
	if failed != nil {
		return failed
	}
	after, err := c.inside.throttled()
	m.throttled = after.since(before)
	return err
}

// addSurroundings adds what the nodes took from the busy program, and what the quota took from the nodes. The busy
// program then computes alone for as long as it has computed beside the nodes.
func (c *coordinator) addSurroundings(r *round, own *measured) {
	if r.beside = c.opts.Cores.Busy; r.beside {
		alone := computeDuring(func() { time.Sleep(own.beside.elapsed) })
		var computed time.Duration
		for _, reply := range own.replies {
			computed += reply.Computed
		}
		r.lost = own.beside.lost(alone, computed)
	}
	if r.quota = c.inside != nil; r.quota {
		r.throttled = own.throttled.per(longest(own.replies))
	}
}
