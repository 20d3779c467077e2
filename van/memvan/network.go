package memvan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/errs"
	"github.com/stepvan/stepvan/internal/text"
)

// Network connects vans of one process. All methods may be called concurrently.
type Network struct {
	mu        sync.Mutex
	nodes     map[string]*memVan // open ones, by name
	listeners map[string]*memVan // by address
	waiting   map[string]*waiters
	names     int // names and addresses given so far
	device    func() *Device
}

// waiters are the dials that wait for a listener at one address.
type waiters struct {
	count   int
	changed chan struct{}
}

// NewNetwork makes an empty network. It needs no Close.
func NewNetwork() *Network {
	return &Network{nodes: map[string]*memVan{}, listeners: map[string]*memVan{}, waiting: map[string]*waiters{}}
}

// NewDeviceNetwork makes a network whose vans reach registered memory alone, each through the device that device
// returns. It is for tests of what stands on vans. Its nodes work as over RDMA, without views.
func NewDeviceNetwork(device func() *Device) *Network {
	net := NewNetwork()
	net.device = device
	return net
}

func (net *Network) join(n *memVan) error {
	net.mu.Lock()
	defer net.mu.Unlock()
	if n.opt.Name == "" {
		n.opt.Name = net.unused("mem-", func(s string) bool { return net.nodes[s] != nil })
	}
	if net.nodes[n.opt.Name] != nil {
		return errs.Invalid("memvan: a van named %q is in the network already", text.Cut(n.opt.Name))
	}
	net.nodes[n.opt.Name] = n
	return nil
}

// leave closes n for every van that looks for it. It returns the endpoints of n, and nil the second time.
func (net *Network) leave(n *memVan) []*endpoint {
	net.mu.Lock()
	defer net.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	close(n.gone)
	for addr, l := range net.listeners {
		if l == n {
			delete(net.listeners, addr)
		}
	}
	if net.nodes[n.opt.Name] == n {
		delete(net.nodes, n.opt.Name)
	}
	return slices.Collect(maps.Keys(n.endpoints))
}

func (net *Network) listen(n *memVan, addr string) (string, error) {
	if err := checkAddr(addr); err != nil && addr != "" {
		return "", err
	}
	net.mu.Lock()
	defer net.mu.Unlock()
	if n.isClosed() {
		return "", stepvan.ErrClosed
	}
	taken := func(s string) bool { return net.listeners[s] != nil }
	if addr == "" {
		addr = n.opt.Name + ":0"
	}
	if host, ok := strings.CutSuffix(addr, ":0"); ok {
		addr = net.unused(host+":", taken)
	}
	if taken(addr) {
		return "", errs.Invalid("address in use by van %q, choose another or \":0\"", text.Cut(net.listeners[addr].opt.Name))
	}
	net.listeners[addr] = n
	if c := net.waiting[addr]; c != nil {
		c.wakeAll()
	}
	return addr, nil
}

func (c *waiters) wakeAll() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// unused makes a name that is not taken. Called with mu held.
func (net *Network) unused(prefix string, taken func(string) bool) string {
	for {
		net.names++
		if s := prefix + strconv.Itoa(net.names); !taken(s) {
			return s
		}
	}
}

func checkAddr(addr string) error {
	if addr == "" || len(addr) > 255 || strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errs.Invalid("%q is not an address: 1 to 255 bytes without spaces", text.Cut(addr))
	}
	return nil
}

func (net *Network) dial(ctx context.Context, n *memVan, addr string) (*endpoint, error) {
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	e, err := net.waitAndConnect(ctx, n, addr)
	if err != nil {
		return nil, err
	}
	e.conn.mu.Lock()
	defer e.conn.unlock()
	e.peer.ready()
	return e, nil
}

// waitAndConnect waits until a van listens at addr and connects n with it.
func (net *Network) waitAndConnect(ctx context.Context, n *memVan, addr string) (*endpoint, error) {
	begun := time.Now()
	net.mu.Lock()
	defer net.mu.Unlock()
	for {
		if n.isClosed() {
			return nil, stepvan.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("nobody listens there: %w", errs.GaveUp(time.Since(begun), err))
		}
		if l := net.listeners[addr]; l != nil {
			return net.connect(n, l, addr), nil
		}
		net.await(ctx, n, addr)
	}
}

// await returns when something has changed at addr, or the caller has lost
// interest. Called with mu held, which it gives up while it waits.
func (net *Network) await(ctx context.Context, n *memVan, addr string) {
	c := net.waiting[addr]
	if c == nil {
		c = &waiters{changed: make(chan struct{})}
		net.waiting[addr] = c
	}
	c.count++
	changed := c.changed
	net.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	case <-n.gone:
	}
	net.mu.Lock()
	if c.count--; c.count == 0 {
		delete(net.waiting, addr)
	}
}

// connect joins n, which dials, with l, which listens. Called with mu held, both open.
func (net *Network) connect(n, l *memVan, addr string) *endpoint {
	c := &conn{}
	for i, v := range [2]*memVan{n, l} {
		e := &c.ends[i]
		e.conn, e.peer, e.van, e.side = c, &c.ends[1-i], v, i
		e.granted.e = e
		switch {
		case v.caps.Views:
			e.public = viewer{granter{e}}
		case v.caps.OneSided:
			e.public = granter{e}
		default:
			e.public = e
		}
	}
	out, in := &c.ends[0], &c.ends[1]
	out.name, in.name = addr, n.opt.Name
	in.accepting = true
	n.attach(out)
	l.attach(in)
	return out
}
