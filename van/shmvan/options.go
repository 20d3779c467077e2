package shmvan

import (
	"cmp"
	"math"

	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// Files knows the memory files of this process. *tensor.Allocator implements it.
type Files interface {
	// Locate finds the file that holds all of b, without allocating.
	Locate(b []byte) (tensor.Place, bool)
	// Watch calls dropped before a file goes back to the system, until stop.
	Watch(dropped func(file uint64)) (stop func())
}

// Options of a van. Zero values take the defaults.
type Options struct {
	Placer      van.Placer  // names the memory of received payload; required
	Limits      wire.Limits // what peers may announce; wire.DefaultLimits
	Files       Files       // memory that peers may map; nil: payload goes by other ways
	Dir         string      // of the sockets; private to the user, made when it is missing; stepvan-<user> in TMPDIR
	Grants      int         // of each endpoint at once, a power of two from 64 to 64 Ki; 4 Ki
	TwoSided    bool        // neither grants nor views
	RingBytes   int         // of each direction of a connection, a power of two from 64 KiB; 512 KiB
	InlineBytes int         // payload up to which it travels in the ring, at most an eighth of it; 8 KiB
	Credits     int         // unreleased deliveries per endpoint, 1 to MaxCredits; 32
	SendQueue   int         // operations per endpoint whose completion is not polled yet; 256
	Pending     int         // peers that have connected and not introduced themselves; 256. More wait in the socket's queue.
	NoForeign   bool        // do not read memory of peers with process_vm_readv, nor let them
	Starved     func(error) // is told each time that there is no descriptor for a peer that connects; by any goroutine. May be nil
}

// MaxCredits is the most that Options.Credits can be.
const MaxCredits = parts.MaxCredits

const (
	defaultRing    = 512 << 10
	minRing        = 64 << 10
	maxRing        = 1 << 30
	defaultInline  = 8 << 10
	defaultGrants  = 4 << 10
	defaultCredits = 32
	defaultQueue   = 256
	defaultPending = 256
	maxQueue       = 1 << 16

	maxSegments = 512
	maxPayload  = 1 << 46
)

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		o.Dir = shm.SocketDir()
	}
	o.RingBytes = cmp.Or(o.RingBytes, defaultRing)
	eighth := o.RingBytes / 8
	err := parts.Complete("shmvan", o.Placer, &o.Limits, []parts.Number{
		{Name: "RingBytes", Value: &o.RingBytes, Least: minRing, Most: maxRing, PowerOfTwo: true},
		{Name: "Grants", Value: &o.Grants, Default: defaultGrants, Least: minSlots, Most: maxSlots, PowerOfTwo: true},
		{Name: "InlineBytes", Value: &o.InlineBytes, Default: min(defaultInline, eighth), Least: 1, Most: eighth},
		{Name: "Credits", Value: &o.Credits, Default: defaultCredits, Least: 1, Most: MaxCredits},
		{Name: "SendQueue", Value: &o.SendQueue, Default: defaultQueue, Least: 1, Most: maxQueue},
		{Name: "Pending", Value: &o.Pending, Default: defaultPending, Least: 1, Most: math.MaxInt32},
	}...)
	return o, err
}

// recordHead is the largest wire header with meta that goes in one record; longer ones go piece by piece (stream.go).
func (o *Options) recordHead() int { return o.RingBytes / 8 }

// slots is how many grants there is room for in a file.
func (o *Options) slots() int {
	if o.TwoSided {
		return 0
	}
	return o.Grants
}

// maxMeta is the most meta of one message.
func (o *Options) maxMeta() int { return int(o.Limits.Meta) }

// headroom is how many bytes of the ring can be in use while a message of any kind still finds room. It leaves room for
// the record twice, because the end of the ring may be too short for it, a line behind it, and a kindForget record.
func (o *Options) headroom() uint64 {
	head := min(o.recordHead(), wire.HeaderSize+o.maxMeta())
	largest := align(recBody + head + 7 + max(o.InlineBytes, maxSegments*segBytes))
	return uint64(o.RingBytes - 2*largest - 3*shm.LineBytes)
}
