package memvan

import (
	"cmp"
	"context"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/van"
)

const vanName = "mem"

// alongBytes is how much of the payload may travel with the head, over a van with Options.Offload.
const alongBytes = 1 << 10

// Options describe one van. Zero values of the numbers mean the defaults.
type Options struct {
	Name        string      // unique in the network; "" for one that the network chooses
	Placer      van.Placer  // required
	Wake        func()      // called when something comes while the van is armed; see New
	Limits      wire.Limits // what a peer may announce; wire.DefaultLimits when zero
	OneSided    bool        // messages may have targets, endpoints implement van.Granter
	NoViews     bool        // with OneSided: no views, as where only a device reaches the peer's memory
	Offload     bool        // with OneSided: a device of the van moves payload with a target, in Poll of the receiver
	Device      *Device     // with OneSided: what reaches registered memory alone; nil for a van that reaches all
	Grants      int         // of one endpoint that may be out; any number when zero
	Queue       int         // operations of one endpoint that may be outstanding; 256
	Credits     int         // deliveries of one endpoint that may be unreleased; 256
	MaxPayload  int64       // bytes of payload in one message; 1 GiB
	MaxSegments int         // segments in one payload; 64
}

func (o Options) withDefaults() Options {
	o.Limits = cmp.Or(o.Limits, wire.DefaultLimits)
	o.Queue = cmp.Or(max(o.Queue, 0), 256)
	o.Credits = cmp.Or(max(o.Credits, 0), 256)
	o.MaxPayload = cmp.Or(max(o.MaxPayload, 0), 1<<30)
	o.MaxSegments = cmp.Or(max(o.MaxSegments, 0), 64)
	return o
}

// memVan implements van.Van.
type memVan struct {
	net  *Network
	opt  Options
	caps van.Caps

	gone chan struct{} // closed by Close

	// the poller's alone
	turn uint64
	held []*endpoint

	mu        sync.Mutex
	closed    bool
	endpoints map[*endpoint]struct{} // until closed here or reported lost
	armed     bool                   // the owner sleeps, and must be woken for the next thing that comes
	// endpoints to look at, linked by next
	first, last *endpoint
}

// New makes a van in net.
//
// The van has no descriptor (FD is -1). It calls opt.Wake, once, when there is something to
// poll after Arm has returned true. Any goroutine may call opt.Wake, from inside calls
// of this and of other vans. opt.Wake must not block and must not call the van.
func New(net *Network, opt Options) (van.Van, error) {
	if opt.Placer == nil {
		return nil, errs.Invalid("memvan: Options.Placer is nil; it names the memory for payload")
	}
	if net.device != nil {
		opt.OneSided, opt.NoViews, opt.Offload, opt.Device = true, true, true, net.device()
	}
	n := &memVan{net: net, opt: opt.withDefaults(), gone: make(chan struct{}), endpoints: map[*endpoint]struct{}{}}
	if err := net.join(n); err != nil {
		return nil, err
	}
	n.caps = van.Caps{
		Name:        vanName,
		MaxMeta:     int(n.opt.Limits.Meta),
		MaxPayload:  n.opt.MaxPayload,
		MaxSegments: n.opt.MaxSegments,
		OneSided:    n.opt.OneSided,
		Views:       n.opt.OneSided && !n.opt.NoViews,
		Offload:     n.opt.Offload,
		Registered:  n.opt.Device != nil,
		Guarded:     n.opt.OneSided, // a peer has only Send and Map, which check each target
		Quiet:       true,
	}
	if n.opt.Offload {
		n.caps.InMessage = alongBytes
	}
	return n, nil
}

// Caps implements van.Van.
func (n *memVan) Caps() van.Caps { return n.caps }

// FD implements van.Van. The van has no descriptor: it calls Options.Wake instead.
func (n *memVan) FD() int { return -1 }

// Listen implements van.Van. An address is any text without spaces of at
// most 255 bytes. An empty address, and one that ends in ":0", stands for a free one.
func (n *memVan) Listen(addr string) (bound string, err error) {
	if bound, err = n.net.listen(n, addr); err != nil {
		return "", &stepvan.OpError{Op: "listen", Van: vanName, Peer: addr, Err: err}
	}
	return bound, nil
}

// Dial implements van.Van. Instead of trying again it waits until somebody listens at addr.
func (n *memVan) Dial(ctx context.Context, addr string) (van.Endpoint, error) {
	ep, err := n.net.dial(ctx, n, addr)
	if err != nil {
		return nil, &stepvan.OpError{Op: "dial", Van: vanName, Peer: addr, Err: err}
	}
	return ep.public, nil
}

// Close implements van.Van.
func (n *memVan) Close() error {
	for _, e := range n.net.leave(n) {
		_ = e.Close()
	}
	return nil
}

func (n *memVan) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// attach makes e an endpoint of n, which is open.
func (n *memVan) attach(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endpoints[e] = struct{}{}
}

func (n *memVan) detach(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.endpoints, e)
}

// check holds m to the contract of Send and returns the size of its payload.
func (n *memVan) check(m *van.Message) (size int64, err error) {
	if size, err = n.caps.Check(m); err != nil {
		return 0, err
	}
	meta := len(m.Head) - wire.HeaderSize
	var h wire.Header
	// The receiver judges a head that is not a header within the limits.
	if h.Decode(m.Head, n.opt.Limits) == nil && (int(h.Meta) != meta || h.Payload != uint64(size)) {
		return 0, errs.Invalid("header announces %d bytes of meta and %d of payload, the message has %d and %d", h.Meta, h.Payload, meta, size)
	}
	return size, nil
}
