package reach

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/errs"
)

// Host is what a start asks this machine about names and addresses. Tests have others than [ThisHost].
type Host struct {
	Lookup     func(ctx context.Context, network, host string) ([]netip.Addr, error)
	Interfaces func() ([]Interface, error)
	Route      func(to netip.Addr) (from netip.Addr, err error) // the address from which the machine sends to another
	Device     func(s *config.Settings) netip.Addr              // of the first RDMA port that a node with settings s uses; zero without
}

// Interface is a network interface of a machine.
type Interface struct {
	Name      string
	Up        bool
	Addresses Addresses
}

// ThisHost is the machine of this process.
func ThisHost() Host {
	return Host{Lookup: net.DefaultResolver.LookupNetIP, Interfaces: interfaces, Route: route, Device: deviceAddress}
}

func interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces cannot be listed: %w", err)
	}
	out := make([]Interface, len(all))
	for i, f := range all {
		out[i] = Interface{Name: f.Name, Up: f.Flags&net.FlagUp != 0}
		list, _ := f.Addrs() // an interface that has vanished has none
		for _, a := range list {
			if p, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(p.IP); ok {
					out[i].Addresses = append(out[i].Addresses, ip.Unmap())
				}
			}
		}
	}
	return out, nil
}

// route connects a UDP socket, which sends nothing: it asks the kernel for the route.
func route(to netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// Addresses belong to a host name, an interface or a machine.
type Addresses []netip.Addr

func (a Addresses) String() string {
	text := make([]string, len(a))
	for i, ip := range a {
		text[i] = ip.String()
	}
	return strings.Join(text, ", ")
}

// Loopback reports whether only the machine itself is reached there.
func (a Addresses) Loopback() bool {
	return !slices.ContainsFunc(a, func(ip netip.Addr) bool { return !ip.IsLoopback() })
}

// Public are those by which other machines may reach this one.
func (a Addresses) Public() Addresses {
	return slices.DeleteFunc(slices.Clone(a), func(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsLinkLocalUnicast() })
}

// Resolve finds the addresses of a host name, which is the value of the setting called key.
func (h Host) Resolve(ctx context.Context, key, host string) (Addresses, error) {
	begun := time.Now()
	ips, err := h.Lookup(ctx, "ip", host)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%s=%s cannot be looked up: %w", key, host, errs.GaveUp(time.Since(begun), ctx.Err()))
	}
	if err != nil || len(ips) == 0 {
		return nil, &stepvan.ConfigError{Key: key, Value: host,
			Reason: fmt.Sprintf("is not known on this machine: set an address, or a name that `getent hosts %s` finds (%v)", host, err)}
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, nil
}

// Own lists the addresses of the machine: none where they are not known.
func (h Host) Own() (own Addresses) {
	all, _ := h.Interfaces()
	for _, f := range all {
		own = append(own, f.Addresses...)
	}
	return own
}

// Owns reports whether one of the addresses is the machine's, as far as that is known.
func (h Host) Owns(a Addresses) bool {
	own := h.Own()
	return len(own) == 0 || slices.ContainsFunc(a, func(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(own, ip) })
}
