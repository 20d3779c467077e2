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
	"github.com/stepvan/stepvan/internal/errs"
)

// dataAddress is where a server listens, and what it tells workers: both hosts without port.
type dataAddress struct{ bind, advertised string }

// listenAddress finds the address by which workers reach this server. Its errors name the setting to change.
func (w *networkVan) listenAddress(ctx context.Context) (dataAddress, error) {
	s := w.settings
	root, err := lookup(ctx, rootURI, s.RootURI)
	if err != nil {
		return dataAddress{}, err
	}
	var at dataAddress
	switch {
	case s.Interface != "" && s.Interface != "auto":
		at, err = onInterface(s.Interface, root)
	case s.NodeHost == "":
		at, err = onRoute(root)
	}
	if err == nil && s.NodeHost != "" {
		at, err = w.advertiseNodeHost(ctx, at)
	}
	if err == nil && !root.ours() {
		err = w.refuseLoopback(ctx, at)
	}
	return at, err
}

// advertiseNodeHost tells workers DMLC_NODE_HOST, which may be an address of a gateway.
func (w *networkVan) advertiseNodeHost(ctx context.Context, at dataAddress) (dataAddress, error) {
	ips, err := lookup(ctx, nodeHost, w.settings.NodeHost)
	if err != nil {
		return at, err
	}
	at.advertised = w.settings.NodeHost
	if at.bind == "" && ips.loopback() {
		at.bind = ips[0].String()
	}
	return at, nil
}

// refuseLoopback refuses an address that leads every other machine to itself.
func (w *networkVan) refuseLoopback(ctx context.Context, at dataAddress) error {
	key, value := netDevice, w.settings.Interface
	if w.settings.NodeHost != "" {
		key, value = nodeHost, w.settings.NodeHost
	}
	ips, err := lookup(ctx, key, at.advertised)
	if err != nil || !ips.loopback() {
		return err
	}
	return &stepvan.ConfigError{Key: key, Value: value,
		Reason: "leads every machine to itself, and the scheduler at " + w.settings.RootURI + " is another machine: set an address by which that one reaches this one, or unset it"}
}

// onRoute takes the address from which the scheduler is reached.
func onRoute(root addresses) (dataAddress, error) {
	var last error
	for _, ip := range root {
		// Connecting a UDP socket sends nothing: it asks the kernel for the route.
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 9)))
		if err != nil {
			last = err
			continue
		}
		local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		_ = c.Close()
		return dataAddress{local.String(), local.String()}, nil
	}
	return dataAddress{}, &stepvan.ConfigError{Key: rootURI, Value: root.String(), Reason: fmt.Sprintf("no route leads there: %v", last)}
}

// onInterface takes an address of a network interface, of the scheduler's family if it has one.
func onInterface(name string, root addresses) (dataAddress, error) {
	all, err := net.Interfaces()
	if err != nil {
		return dataAddress{}, fmt.Errorf("network interfaces cannot be listed: %w", err)
	}
	i := slices.IndexFunc(all, func(f net.Interface) bool { return f.Name == name })
	if i < 0 {
		return dataAddress{}, &stepvan.ConfigError{Key: netDevice, Value: name, Reason: "is not a network interface of this machine: set one of " + strings.Join(up(all), ", ")}
	}
	ips := addressesOf(all[i])
	if len(ips) == 0 {
		return dataAddress{}, &stepvan.ConfigError{Key: netDevice, Value: name, Reason: "has no address: give it one, or set one of " + strings.Join(up(all), ", ")}
	}
	best := slices.IndexFunc(ips, func(ip netip.Addr) bool { return !ip.IsLinkLocalUnicast() && ip.Is4() == root[0].Is4() })
	ip := ips[max(best, 0)].String()
	return dataAddress{ip, ip}, nil
}

// up names the interfaces that have an address and are in use.
func up(all []net.Interface) []string {
	var out []string
	for _, f := range all {
		if f.Flags&net.FlagUp != 0 && len(addressesOf(f)) > 0 {
			out = append(out, f.Name)
		}
	}
	return out
}

// addresses are what a host name stands for.
type addresses []netip.Addr

func (a addresses) String() string {
	text := make([]string, len(a))
	for i, ip := range a {
		text[i] = ip.String()
	}
	return strings.Join(text, ", ")
}

// lookup resolves a host name of the setting called key.
func lookup(ctx context.Context, key, host string) (addresses, error) {
	begun := time.Now()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
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

// loopback reports whether only this machine is reached there.
func (a addresses) loopback() bool {
	return !slices.ContainsFunc(a, func(ip netip.Addr) bool { return !ip.IsLoopback() })
}

// ours reports whether one of the addresses is this machine's.
func (a addresses) ours() bool {
	if slices.ContainsFunc(a, netip.Addr.IsLoopback) {
		return true
	}
	all, err := net.Interfaces()
	if err != nil {
		return true // nothing is known against it
	}
	for _, f := range all {
		for _, ip := range addressesOf(f) {
			if slices.Contains(a, ip) {
				return true
			}
		}
	}
	return false
}

func addressesOf(f net.Interface) addresses {
	var out addresses
	list, _ := f.Addrs() // an interface that has vanished has none
	for _, a := range list {
		if p, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(p.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}
