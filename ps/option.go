package ps

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/reach"
)

// Option is an argument of [Start] that no setting has.
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

// WithNetwork connects the node with the other nodes of net, which are all in this process. STEPVAN_VAN must be mem or
// auto.
func WithNetwork(net *Network) Option { return func(o *options) { o.network = net } }

// WithLogger writes the log to l instead of standard error, and adds role and rank. The level of l applies.
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.log = &l } }

// ReadFrom makes errors begin with the variable that the user has set. lookup answers like os.LookupEnv for the
// environment that the settings are from. [StartFromEnv] and [StartFrom] do this by themselves.
func ReadFrom(lookup func(string) (string, bool)) Option {
	return func(o *options) { o.written = lookup }
}

// OnDead calls f on workers and servers for every instance of the cluster that dies, the scheduler included. The
// scheduler itself only logs deaths. stepvan calls f between two messages: f must not block or wait.
func OnDead(f func(p Peer, err error)) Option { return func(o *options) { o.onDead = f } }

// ContainPanics has a panic of this library end the node and not the process. The report goes to the log, all
// operations return an [stepvan.InternalError], and the rest of the program lives. Bindings to other languages use it.
// Without it a Go program ends as with any panic, after one line that names version, node, peer and operation. In both
// cases the other nodes see this node die. Where the panic has left a lock locked the process ends all the same.
func ContainPanics() Option { return func(o *options) { o.contain = true } }

// OnListen calls f with the port of the scheduler as soon as nodes can register. A program learns the port in this way
// when DMLC_PS_ROOT_PORT is 0. Start calls f.
func OnListen(f func(port int)) Option { return func(o *options) { o.onListen = f } }
