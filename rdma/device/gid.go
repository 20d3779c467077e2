package device

import (
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"

	"github.com/stepvan/stepvan/internal/text"
)

// GIDType is the protocol of an entry of a GID table.
type GIDType string

// The types of entries. Anything else that a kernel says has no use here.
const (
	RoCEv1     GIDType = "RoCE v1"
	RoCEv2     GIDType = "RoCE v2"
	GIDOfIB    GIDType = "InfiniBand"
	GIDOfIWARP GIDType = "iWARP"
)

// GID is an entry of the GID table of a port.
type GID struct {
	Index     int        `json:"index"`
	Address   netip.Addr `json:"gid"` // IPv6; an IPv4 address is mapped
	Type      GIDType    `json:"type"`
	Interface string     `json:"interface,omitempty"` // the network interface; "" where the entry names none
}

// IP is the address of RoCE that the entry stands for.
func (g GID) IP() netip.Addr { return g.Address.Unmap() }

// String is the entry as people know it: an IP address of RoCE, a hardware address of iWARP.
func (g GID) String() string {
	if g.Type == GIDOfIWARP {
		b := g.Address.As16()
		return net.HardwareAddr(b[:6]).String()
	}
	return g.IP().String()
}

// mostGIDs bounds how many entries are read of a table. Virtual functions of large machines have some thousands.
const mostGIDs = 1 << 16

// gids reads the table of a port without its empty entries, in the order of their indices.
func (r reader) gids(d *Device, dir string, p *Port) (all []GID) {
	names := r.names(dir + "/gids")
	indices := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && strconv.Itoa(n) == name {
			indices = append(indices, n)
		}
	}
	slices.Sort(indices)
	for _, n := range indices[:min(len(indices), mostGIDs)] {
		if g, ok := r.gid(d, dir, p, n); ok {
			all = append(all, g)
		}
	}
	return all
}

// gid reads an entry. The kernel has no type and no interface for an empty one: there its files fail.
func (r reader) gid(d *Device, dir string, p *Port, n int) (GID, bool) {
	index := strconv.Itoa(n)
	file := path.Join("ports", strconv.Itoa(p.Number), "gids", index)
	s, err := r.text(dir + "/gids/" + index)
	if err != nil {
		d.problem(file, "%v", plain(err))
		return GID{}, false
	}
	address, err := parseGID(s)
	if err != nil {
		d.problem(file, "%v", err)
		return GID{}, false
	}
	if address.IsUnspecified() {
		return GID{}, false
	}
	g := GID{Index: n, Address: address, Interface: r.word(dir + "/gid_attrs/ndevs/" + index)}
	g.Type = gidType(r.word(dir+"/gid_attrs/types/"+index), d.Transport, p.LinkLayer)
	if g.Type == "" {
		d.problem(path.Join("ports", strconv.Itoa(p.Number), "gid_attrs/types", index), "the kernel tells no type")
	}
	return g, true
}

// gidType tells the protocol. The kernel writes "IB/RoCE v1" for entries of InfiniBand, iWARP and RoCE v1, so the link
// tells them apart.
func gidType(written string, t Transport, l LinkLayer) GIDType {
	switch {
	case t == IWARP:
		return GIDOfIWARP
	case l == LinkInfiniBand:
		return GIDOfIB
	case written == "IB/RoCE v1":
		return RoCEv1
	}
	return GIDType(text.Line(written, 32))
}

// parseGID reads an entry as sysfs writes it: eight groups of four digits.
func parseGID(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return netip.Addr{}, errNoGID(s)
	}
	return a, nil
}

type errNoGID string

func (e errNoGID) Error() string { return "is not a GID: " + strconv.Quote(text.Cut(string(e))) }

// rank orders addresses: IPv4 first, then IPv6, link-local ones last.
func rank(a netip.Addr) int {
	switch {
	case a.IsLinkLocalUnicast():
		return 2
	case a.Is4():
		return 0
	}
	return 1
}
