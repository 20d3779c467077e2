package ps

import (
	"github.com/rs/zerolog"
	"github.com/stepvan/stepvan/internal/reach"
)

// Option changes what settings cannot say.
type Option func(*options)

type options struct {
	written  func(string) (string, bool) // the environment that the settings are from; nil: a program has set them
	network  *Network
	log      *zerolog.Logger
	onDead   func(Peer, error)
	onListen func(port int)
	contain  bool
	shm      reach.ShmMaker // nil: that of package reach
}

func collect(opts []Option) options {
	o := options{onDead: func(Peer, error) {}, onListen: func(int) {}}
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

// ReadFrom has errors begin with the variable that the user has set. lookup answers like os.LookupEnv for the
// environment that the settings are from. StartFromEnv and StartFrom do this by themselves.
func ReadFrom(lookup func(string) (string, bool)) Option {
	return func(o *options) { o.written = lookup }
}

// OnDead has f called, on workers and servers, for every node of the cluster that dies, the
// scheduler included. The scheduler itself logs who died.
// It is called on the node's driver: it must not block or wait.
func OnDead(f func(p Peer, err error)) Option { return func(o *options) { o.onDead = f } }

// ContainPanics has a panic of this library end the node in place of the process. Without it a Go program ends as it does
// with any panic, after one line that names version, node, peer and operation; with it the report goes to the log, all waits return an *InternalError, and the rest of
// the program lives. Either way the others of the cluster see the node die. Bindings to other languages use it, where nobody can recover.
// Where the panic has left a lock locked the process ends all the same, with the report as its last words.
func ContainPanics() Option { return func(o *options) { o.contain = true } }

// OnListen has f called with the scheduler's port as soon as nodes can register,
// which is how to learn it when DMLC_PS_ROOT_PORT is 0. Start calls it.
func OnListen(f func(port int)) Option { return func(o *options) { o.onListen = f } }
