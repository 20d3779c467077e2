package ps

import (
	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/reach"
)

// Option changes how [Start] starts a node, in a way that no setting offers.
type Option func(*options)

type options struct {
	written  func(string) (string, bool) // the environment that the settings are from; nil: a program has set them
	network  *Network
	log      *zerolog.Logger
	onDead   func(Peer, error)
	onListen func(port int)
	contain  bool
	shm      reach.Maker     // of shared memory; nil: that of package reach
	rdma     reach.Maker     // nil: that of package reach
	devices  func() []string // of RDMA; nil: those of the machine
}

func collect(opts []Option) options {
	o := options{onDead: func(Peer, error) {}, onListen: func(int) {}}
	for _, set := range opts {
		set(&o)
	}
	return o
}

// WithNetwork connects the node only with the other nodes of net. All of them are in this process. STEPVAN_VAN must be
// mem or auto.
func WithNetwork(net *Network) Option { return func(o *options) { o.network = net } }

// WithLogger writes the log to l instead of standard error. Each line has the role and the rank. The level of l
// applies.
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.log = &l } }

// ReadFrom says which environment the settings come from. Errors then name the variable that the user has set there.
// lookup works like [os.LookupEnv]. [StartFromEnv] and [StartFrom] use this option by themselves.
func ReadFrom(lookup func(string) (string, bool)) Option {
	return func(o *options) { o.written = lookup }
}

// OnDead is for workers and servers. The node calls f when another instance of the cluster or the scheduler dies. The
// node handles no messages while f runs, so f must not block or wait. The scheduler does not call f, and logs deaths.
func OnDead(f func(p Peer, err error)) Option { return func(o *options) { o.onDead = f } }

// ContainPanics makes a panic of this library end the node and not the process. The report goes to the log, and all
// operations return a [stepvan.InternalError]. The rest of the program continues. The bindings for C and Python use
// this option. Without it a panic ends the program, after one line that names version, node, peer and operation. In
// both cases the other nodes see this node die. When the panic has left a lock locked, the process ends in both cases.
func ContainPanics() Option { return func(o *options) { o.contain = true } }

// OnListen is for the scheduler. [Start] calls f with its port as soon as nodes can register. A program learns the port
// in this way when DMLC_PS_ROOT_PORT is 0.
func OnListen(f func(port int)) Option { return func(o *options) { o.onListen = f } }
