package reach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/rdma/device"
)

// ServerAddress is where a server or a peer listens, and what it tells others: both hosts without port. An empty Bind
// means all addresses.
type ServerAddress struct{ Bind, Advertised string }

// ServerAddress finds the address by which others reach a server or a peer with settings s. Its errors name the setting
// to change.
func (h Host) ServerAddress(ctx context.Context, s *config.Settings) (ServerAddress, error) {
	root, err := h.Resolve(ctx, rootURI, s.RootURI)
	if err != nil {
		return ServerAddress{}, err
	}
	var at ServerAddress
	switch {
	case s.Interface == device.Auto && MayUseRDMA(s):
		at.Bind, err = h.onDevice(s, root)
	case s.Interface != "" && s.Interface != device.Auto:
		at.Bind, err = h.onInterface(s.Interface, root)
	case s.NodeHost == "":
		at.Bind, err = h.onRoute(root)
	}
	at.Advertised = at.Bind
	if err == nil && s.NodeHost != "" {
		at, err = h.advertise(ctx, s.NodeHost, at.Bind)
	}
	if err == nil && !h.Owns(root) {
		err = h.refuseLoopback(ctx, s, at)
	}
	return at, err
}

// advertise tells others the value of DMLC_NODE_HOST, which may be an address of a gateway.
func (h Host) advertise(ctx context.Context, host, bind string) (ServerAddress, error) {
	ips, err := h.Resolve(ctx, nodeHost, host)
	if err == nil && bind == "" && ips.Loopback() {
		bind = ips[0].String()
	}
	return ServerAddress{bind, host}, err
}

// refuseLoopback refuses an address that leads every other machine to itself.
func (h Host) refuseLoopback(ctx context.Context, s *config.Settings, at ServerAddress) error {
	key, value := netDevice, s.Interface
	if s.NodeHost != "" {
		key, value = nodeHost, s.NodeHost
	}
	ips, err := h.Resolve(ctx, key, at.Advertised)
	if err != nil || !ips.Loopback() {
		return err
	}
	return &stepvan.ConfigError{Key: key, Value: value,
		Reason: "leads every machine to itself, and the scheduler at " + s.RootURI + " is another machine: set an address by which that one reaches this one, or unset it"}
}

// onDevice takes the address of the first RDMA port that the node uses. Without one it is as if no interface were set.
func (h Host) onDevice(s *config.Settings, root Addresses) (string, error) {
	switch at := h.Device(s); {
	case at.IsValid() && !at.IsLinkLocalUnicast():
		return at.String(), nil
	case s.NodeHost != "":
		return "", nil
	}
	return h.onRoute(root)
}

// onRoute takes the address from which the scheduler is reached.
func (h Host) onRoute(root Addresses) (string, error) {
	var last error
	for _, ip := range root {
		from, err := h.Route(ip)
		if err == nil {
			return from.String(), nil
		}
		last = err
	}
	return "", &stepvan.ConfigError{Key: rootURI, Value: root.String(), Reason: fmt.Sprintf("no route leads there: %v", last)}
}

// onInterface takes an address of a network interface, of the scheduler's family if it has one.
func (h Host) onInterface(name string, root Addresses) (string, error) {
	all, err := h.Interfaces()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(f Interface) bool { return f.Name == name })
	if i < 0 {
		return "", &stepvan.ConfigError{Key: netDevice, Value: name, Reason: "is not a network interface of this machine: set one of " + inUse(all)}
	}
	ips := all[i].Addresses
	if len(ips) == 0 {
		return "", &stepvan.ConfigError{Key: netDevice, Value: name, Reason: "has no address: give it one (ip addr add ADDRESS/PREFIX dev " + name + "), or set one of " + inUse(all)}
	}
	best := slices.IndexFunc(ips, func(ip netip.Addr) bool { return !ip.IsLinkLocalUnicast() && ip.Is4() == root[0].Is4() })
	return ips[max(best, 0)].String(), nil
}

// inUse names the interfaces that are up and have an address, with the one by which others may reach it.
func inUse(all []Interface) string {
	var names []string
	for _, f := range all {
		if public := f.Addresses.Public(); f.Up && len(public) > 0 {
			names = append(names, fmt.Sprintf("%s (%s)", f.Name, public[0]))
		} else if f.Up && len(f.Addresses) > 0 {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		return "those of `ip addr`, none of which is up with an address"
	}
	return strings.Join(names, ", ")
}
