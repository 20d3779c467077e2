package ps

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/van"
)

// Option changes what settings cannot say.
type Option func(*options)

type options struct {
	network  *Network
	log      *zerolog.Logger
	onDead   func(Peer, error)
	onListen func(port int)
	shm      func(m *member, p van.Placer, wake func()) (van.Van, error)
}

func collect(opts []Option) options {
	o := options{onDead: func(Peer, error) {}, onListen: func(int) {}, shm: newShm}
	for _, set := range opts {
		set(&o)
	}
	return o
}

// WithNetwork has the node meet the others in net, within this process, when
// STEPVAN_VAN is mem or auto.
func WithNetwork(net *Network) Option { return func(o *options) { o.network = net } }

// WithLogger has lines written to l instead of standard error; role and rank are added.
// The level is that of l.
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.log = &l } }

// OnDead has f called, on workers and servers, for every node of the cluster that dies, the
// scheduler included. The scheduler itself logs who died.
// It is called on the node's driver: it must not block or wait.
func OnDead(f func(p Peer, err error)) Option { return func(o *options) { o.onDead = f } }

// OnListen has f called with the scheduler's port as soon as nodes can register,
// which is how to learn it when DMLC_PS_ROOT_PORT is 0. Start calls it.
func OnListen(f func(port int)) Option { return func(o *options) { o.onListen = f } }
