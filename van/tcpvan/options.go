package tcpvan

import (
	"cmp"
	"time"

	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/parts"
)

// Options of a van. Zero values take the defaults.
type Options struct {
	Placer        van.Placer    // names the memory of received payload; required
	Limits        wire.Limits   // what peers may announce; wire.DefaultLimits
	Rails         int           // connections per dialed endpoint, 1 to MaxRails; 1. The dialing side decides.
	RailThreshold int           // bytes of payload from which it is cut over the rails; 256 KiB
	SmallBytes    int           // bytes of payload that are read together with their header; 16 KiB
	InMessage     int           // bytes of payload up to which a message comes with it (van.Caps.InMessage), at most 64 KiB; 1 KiB; negative: none does
	SocketBuffer  int           // bytes of SO_SNDBUF and SO_RCVBUF; 0 leaves the size to the kernel for TCP, 1 MiB for Unix sockets
	Local         bool          // only Unix sockets and loopback addresses
	Credits       int           // unreleased deliveries per endpoint, 1 to MaxCredits; 32
	SendQueue     int           // operations per endpoint whose completion is not yet polled, rounded up to a power of two; 64
	Pending       int           // accepted connections of peers that nobody knows (van.Settler); 1024. Beyond that, those that had their time make room.
	Starved       func(error)   // is told each time that a listener finds no descriptor for a peer; from within Poll: must not block. May be nil
	PendingTime   time.Duration // how long a connection may take to say what it is; 10 s
	Stall         time.Duration // how long the middle of a message may bring no byte, before the peer is lost; 0: as long as the connection lasts
}

// Bounds of options.
const (
	MaxRails   = 16
	MaxCredits = parts.MaxCredits
)

const (
	defaultRailThreshold = 256 << 10
	defaultSmallBytes    = 16 << 10
	defaultInMessage     = 1 << 10
	defaultUnixBuffer    = 1 << 20
	defaultCredits       = 32
	defaultSendQueue     = 64
	defaultPending       = 1024
	defaultPendingTime   = 10 * time.Second

	maxSegments = 1 << 13
	maxMessage  = 1 << 56 // keeps sums of parts of rails from wrapping
	maxSmall    = 4 << 20
	maxQueue    = 1 << 16
	maxSockBuf  = 1 << 30
)

func (o Options) complete() (Options, error) {
	switch {
	case o.PendingTime < 0:
		return o, errs.Invalid("tcpvan: Options.PendingTime: negative (got %v): give a positive duration, or 0 for the default", o.PendingTime)
	case o.Stall < 0:
		return o, errs.Invalid("tcpvan: Options.Stall: negative (got %v): give a positive duration, or 0 for no limit", o.Stall)
	}
	if o.InMessage > parts.MaxKeptBytes {
		return o, errs.Invalid("tcpvan: Options.InMessage: too large (got %d, want at most %d)", o.InMessage, parts.MaxKeptBytes)
	}
	o.InMessage = max(0, cmp.Or(o.InMessage, defaultInMessage))
	o.PendingTime = cmp.Or(o.PendingTime, defaultPendingTime)
	err := parts.Complete("tcpvan", o.Placer, &o.Limits, []parts.Number{
		{Name: "Rails", Value: &o.Rails, Default: 1, Least: 1, Most: MaxRails},
		{Name: "RailThreshold", Value: &o.RailThreshold, Default: defaultRailThreshold, Least: 1, Most: maxThreshold},
		{Name: "SmallBytes", Value: &o.SmallBytes, Default: defaultSmallBytes, Least: 1, Most: maxSmall},
		{Name: "SocketBuffer", Value: &o.SocketBuffer, Least: 1, Most: maxSockBuf},
		{Name: "Credits", Value: &o.Credits, Default: defaultCredits, Least: 1, Most: MaxCredits},
		{Name: "SendQueue", Value: &o.SendQueue, Default: defaultSendQueue, Least: 1, Most: maxQueue},
		{Name: "Pending", Value: &o.Pending, Default: defaultPending, Least: 1, Most: maxQueue},
	}...)
	o.Limits.Message = min(o.Limits.Message, maxMessage)
	return o, err
}
