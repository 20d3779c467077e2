package device

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Interface is a network interface.
type Interface struct {
	Name      string
	Up        bool
	MTU       int // bytes
	Hardware  []byte
	Addresses []netip.Addr
	Master    string // the bond or bridge that it belongs to; "" for none
	VLAN      int    // 0 for none
	Parent    string // the interface below a VLAN
}

func (f *Interface) has(a netip.Addr) bool { return slices.Contains(f.Addresses, a) }

// rank orders interfaces: an address of a VLAN leads to that network only, and one of a member of a bond to nowhere.
func (f *Interface) rank() int { return truth(f.VLAN != 0) + 2*truth(f.Master != "") }

// interfaces lists those of this process's network namespace.
func interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces cannot be listed: %w", err)
	}
	out := make([]Interface, len(all))
	for i, f := range all {
		out[i] = Interface{Name: f.Name, Up: f.Flags&net.FlagUp != 0, MTU: f.MTU, Hardware: f.HardwareAddr}
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

// complete adds what sysfs and proc know of the interfaces.
func (m Machine) complete(all []Interface) {
	vlans := parseVLANs(m.word("proc/net/vlan/config"))
	for i := range all {
		f := &all[i]
		if to := m.link(path.Join(netDir, f.Name, "master")); to != "" {
			f.Master = path.Base(to)
		}
		v := vlans[f.Name]
		f.VLAN, f.Parent = v.id, v.parent
	}
}

type vlan struct {
	id     int
	parent string
}

// parseVLANs reads /proc/net/vlan/config: two lines of headings, then "eth0.100 | 100 | eth0".
func parseVLANs(text string) map[string]vlan {
	all := map[string]vlan{}
	for line := range strings.Lines(text) {
		parts := strings.Split(line, "|")
		if len(parts) != 3 {
			continue
		}
		id, err := strconv.Atoi(strings.TrimSpace(parts[1]))
		if name := strings.TrimSpace(parts[0]); err == nil && id > 0 && id < 4095 && name != "" {
			all[name] = vlan{id, strings.TrimSpace(parts[2])}
		}
	}
	return all
}
