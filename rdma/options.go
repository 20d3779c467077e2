package rdma

import (
	"cmp"
	"math"
	"net/netip"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// Options of a van. Zero values take the defaults.
type Options struct {
	Placer       van.Placer    // names the memory of received payload; required
	Limits       wire.Limits   // what peers may announce; wire.DefaultLimits
	Devices      []string      // names of the devices to use; empty: all that have an active port
	Source       netip.Addr    // from which Dial connects, and so the device and its GID; the zero value leaves it to the route
	SlotBytes    int           // of one slot, a power of two from 1 KiB to 64 KiB; 4 KiB
	Slots        int           // of messages under way to this side, for each endpoint, 4 to 1024; 16
	SendSlots    int           // of what is under way from this side and was not copied into the queue itself, 2 to 64; 8
	Inline       int           // bytes that are copied into the send queue itself, where the device takes as many; 512; negative: none
	SendRequests int           // work requests in the send queue, 16 to 8 Ki; 128
	FetchBytes   int           // payload without target above which it is fetched from registered memory, and not copied through slots; 16 KiB; negative: never
	Credits      int           // unreleased deliveries per endpoint, 1 to parts.MaxCredits; 32
	SendQueue    int           // operations per endpoint whose completion is not polled yet; 64
	Pending      int           // accepted connections of peers that nobody knows (van.Settler); 256
	PendingTime  time.Duration // how long a peer may take to say hello, or what has come over a rail that was lost; 10 s
	AckTimeout   int           // how long the device waits for an acknowledgement: 4.096 us times 2 to the power of it, 8 to 20; 14 (67 ms)
	Retries      int           // of a request that is not acknowledged, 1 to 6; 6
	Windows      bool          // each grant has a key of its own (van.Caps.Guarded), where all devices have memory windows of type 2
	Immediate    bool          // messages are written to a ring of slots, with an immediate, where the peer says the same; not over iWARP. By default they are sent.
	Paths        PathOptions   // of a connection that this side dials. Not more than one with Windows
	TrafficClass int           // of the packets, as in the header of IP: 1 to 255; 0 leaves it to the system
	Starved      func(error)   // is told each time that there is no memory or queue pair for a peer that connects; by any goroutine. May be nil
}

// PathOptions are for connections over several queue pairs. Zero values take the defaults.
type PathOptions struct {
	Count       int              // queue pairs between two ports, 1 to 8; 1
	Ports       []netip.Addr     // of this side, over which a connection goes: to as many ports of the peer, in its order. Empty: one, from Options.Source. Times Count at most 8
	SplitLAG    bool             // the queue pairs go over the ports of a bond by turns, where the driver is mlx5
	StripeBytes int              // payload with targets from which it is cut over the queue pairs; 256 KiB
	ReturnTime  time.Duration    // how long a port must have been up before a path that was lost comes back; 5 s
	Changed     func(PathChange) // is told of paths that fail while others carry on, and of those that stand again. Calls of a connection come one at a time, by any goroutine. They must not close the van. May be nil
}

const (
	defaultSlotBytes = 4 << 10
	defaultPending   = 256
	maxQueue         = 1 << 16
	maxSegments      = 1 << 13

	defaultPendingTime = 10 * time.Second
	defaultReturnTime  = 5 * time.Second
)

// inMessage is the largest payload that is delivered beside the meta. Above, a second copy costs more than to ask where
// the payload belongs.
const inMessage = 1 << 10

func (o Options) complete() (Options, error) {
	if o.PendingTime < 0 {
		return o, errs.Invalid("rdma: Options.PendingTime: negative (got %v): give a positive duration, or 0 for the default", o.PendingTime)
	}
	if o.Paths.ReturnTime < 0 {
		return o, errs.Invalid("rdma: PathOptions.ReturnTime: negative (got %v): give a positive duration, or 0 for the default", o.Paths.ReturnTime)
	}
	o.PendingTime = cmp.Or(o.PendingTime, defaultPendingTime)
	o.Paths.ReturnTime = cmp.Or(o.Paths.ReturnTime, defaultReturnTime)
	o.Inline = max(0, cmp.Or(o.Inline, 512))
	if o.FetchBytes = cmp.Or(o.FetchBytes, 16<<10); o.FetchBytes < 0 {
		o.FetchBytes = math.MaxInt
	}
	err := parts.Complete("rdma", o.Placer, &o.Limits, []parts.Number{
		{Name: "SlotBytes", Value: &o.SlotBytes, Default: defaultSlotBytes, Least: 1 << 10, Most: 64 << 10, PowerOfTwo: true},
		{Name: "Slots", Value: &o.Slots, Default: 16, Least: 4, Most: 1 << 10},
		{Name: "SendSlots", Value: &o.SendSlots, Default: 8, Least: 2, Most: 64},
		{Name: "SendRequests", Value: &o.SendRequests, Default: 128, Least: 16, Most: 8 << 10},
		{Name: "Credits", Value: &o.Credits, Default: 32, Least: 1, Most: parts.MaxCredits},
		{Name: "SendQueue", Value: &o.SendQueue, Default: 64, Least: 1, Most: maxQueue},
		{Name: "Pending", Value: &o.Pending, Default: defaultPending, Least: 1, Most: maxQueue},
		{Name: "AckTimeout", Value: &o.AckTimeout, Default: 14, Least: 8, Most: 20},
		{Name: "Retries", Value: &o.Retries, Default: 6, Least: 1, Most: 6},
		{Name: "Paths.Count", Value: &o.Paths.Count, Default: 1, Least: 1, Most: maxPaths},
		{Name: "Paths.StripeBytes", Value: &o.Paths.StripeBytes, Default: 256 << 10, Least: 1, Most: 1 << 40},
		{Name: "TrafficClass", Value: &o.TrafficClass, Least: 1, Most: 255},
	}...)
	if err == nil {
		err = o.checkPaths()
	}
	return o, err
}

// paths is how many rails a connection may have that this side dials.
func (o *Options) paths() int { return o.Paths.Count * max(1, len(o.Paths.Ports)) }

func (o *Options) checkPaths() error {
	switch {
	case o.paths() > maxPaths:
		return errs.Invalid("rdma: Options.Paths: too many (got %d queue pairs, want at most %d): lower PathOptions.Count, or give fewer of PathOptions.Ports", o.paths(), maxPaths)
	case o.paths() > 1 && o.Windows:
		return errs.Invalid("rdma: Options.Paths: memory windows serve one queue pair each (got %d, want 1): leave Options.Windows unset, or Options.Paths", o.paths())
	}
	if len(o.Paths.Ports) > 0 {
		o.Source = o.Paths.Ports[0]
	}
	return nil
}
