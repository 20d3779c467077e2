package ps

import (
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/van"
)

// WithVan has f make the van of that name for each node, given its settings: shared memory or RDMA.
func WithVan(name config.Van, f func(s Settings, p van.Placer, wake func()) (van.Van, error)) Option {
	return func(o *options) {
		m := func(e *reach.Endpoint, p van.Placer, wake func()) (van.Van, error) { return f(e.Settings(), p, wake) }
		if name == config.VanRDMA {
			o.rdma = m
		} else {
			o.shm = m
		}
	}
}

// WithDevices gives nodes the names of the RDMA devices of their machine.
func WithDevices(names ...string) Option {
	return func(o *options) { o.devices = func() []string { return names } }
}
