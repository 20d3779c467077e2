package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/stepvan/stepvan/config"
)

// checkNames looks up the host names of the settings.
func (d network) checkNames(ctx context.Context) {
	if d.settings.RootURI != "" {
		if addrs := d.lookup(ctx, "scheduler name", "DMLC_PS_ROOT_URI", d.settings.RootURI); len(addrs) > 0 {
			d.checkRootAddrs(addrs)
		}
	}
	if d.settings.NodeHost != "" {
		if addrs := d.lookup(ctx, "node name", "DMLC_NODE_HOST", d.settings.NodeHost); len(addrs) > 0 {
			d.checkNodeAddrs(addrs)
		}
	}
}

// lookup returns the addresses of host, or reports that host does not have any.
func (d network) lookup(ctx context.Context, name, variable, host string) []string {
	if isAddr(host) {
		return []string{host}
	}
	ctx, cancel := context.WithTimeout(ctx, d.reach)
	defer cancel()
	addrs, err := d.sys.Lookup(ctx, host)
	if err != nil || len(addrs) == 0 {
		reason := ""
		if err != nil {
			reason = " (" + err.Error() + ")"
		}
		d.fail(name, host+" has no address"+reason,
			"getent hosts "+host+" shows what this machine knows: set "+variable+" to an address, or add the name to DNS or /etc/hosts")
	}
	return addrs
}

// checkRootAddrs compares the scheduler's addresses with those of this machine.
func (d network) checkRootAddrs(addrs []string) {
	const name = "scheduler name"
	s := d.settings
	found := describe(s.RootURI, addrs)
	own := d.ownAddrs()
	mine := len(own) == 0 || slices.ContainsFunc(addrs, func(a string) bool { return loopback(a) || slices.Contains(own, a) })
	switch {
	case !mine && s.Local:
		d.fail(name, found+" is another machine, and DMLC_LOCAL=1 means this one only", "set DMLC_PS_ROOT_URI=127.0.0.1, or unset DMLC_LOCAL")
	case !mine && s.Role == config.RoleScheduler:
		d.warn(name, found+" is not an address of this machine, which is the scheduler",
			"set DMLC_PS_ROOT_URI to one of "+strings.Join(reachable(own), ", ")+" everywhere, unless a service or NAT address leads here")
	case !isAddr(s.RootURI) && !s.Local && !slices.ContainsFunc(addrs, func(a string) bool { return !loopback(a) }) && s.RootURI != "localhost":
		d.warn(name, found+" is the loopback address, which other machines cannot reach",
			"remove the line of "+s.RootURI+" with 127.x.x.x from /etc/hosts, or set DMLC_PS_ROOT_URI to one of "+strings.Join(reachable(own), ", "))
	default:
		d.ok(name, found)
	}
}

// checkNodeAddrs finds a DMLC_NODE_HOST that leads elsewhere.
func (d network) checkNodeAddrs(addrs []string) {
	own := d.ownAddrs()
	found := describe(d.settings.NodeHost, addrs)
	if len(own) > 0 && !slices.ContainsFunc(addrs, func(a string) bool { return loopback(a) || slices.Contains(own, a) }) {
		d.warn("node name", found+" is not an address of this machine, and other nodes connect to it",
			"set DMLC_NODE_HOST to one of "+strings.Join(reachable(own), ", ")+", unless a service or NAT address leads here")
		return
	}
	d.ok("node name", found)
}

func (d network) ownAddrs() []string {
	all, err := d.sys.Interfaces()
	if err != nil {
		return nil
	}
	var own []string
	for _, i := range all {
		own = append(own, i.Addrs...)
	}
	return own
}

// reachable drops the addresses that only this machine can use.
func reachable(addrs []string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(a string) bool {
		ip, err := netip.ParseAddr(a)
		return err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast()
	})
}

func isAddr(host string) bool { _, err := netip.ParseAddr(host); return err == nil }

func loopback(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && ip.IsLoopback()
}

// describe reads "head-node is 10.0.0.1", or just the address.
func describe(host string, addrs []string) string {
	if len(addrs) == 1 && addrs[0] == host {
		return host
	}
	return host + " (" + strings.Join(addrs, ", ") + ")"
}
