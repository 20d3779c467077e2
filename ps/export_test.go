package ps

import "github.com/stepvan/stepvan/van"

// WithShm has f make the shared memory van of each node, given its settings.
func WithShm(f func(s Settings, p van.Placer, wake func()) (van.Van, error)) Option {
	return func(o *options) {
		o.shm = func(m *member, p van.Placer, wake func()) (van.Van, error) { return f(*m.node.settings, p, wake) }
	}
}

// VisitorsOf is visitorsOf.
func VisitorsOf(s *Settings, files uint64) int { return visitorsOf(s, files) }
