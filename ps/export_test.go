package ps

import (
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/van"
)

// WithShm has f make the shared memory van of each node, given its settings.
func WithShm(f func(s Settings, p van.Placer, wake func()) (van.Van, error)) Option {
	return func(o *options) {
		o.shm = func(e *reach.Endpoint, p van.Placer, wake func()) (van.Van, error) { return f(e.Settings(), p, wake) }
	}
}
