package device

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// address chooses GID and source address of a port, or says why none fits.
func (c *chooser) address(p PortRef) (Choice, obstacle) {
	choice := Choice{Device: p.Device.Name, Port: p.Port.Number}
	var o obstacle
	switch {
	case p.Device.Transport == IWARP:
		choice, o = c.byInterface(choice, p, c.entry(p, AnyGID))
	case p.Port.LinkLayer == LinkInfiniBand:
		choice, o = c.byInterface(choice, p, c.entry(p, c.request.GIDIndex))
	default:
		choice, o = c.ofRoCE(choice, p)
	}
	if choice.Source.IsLinkLocalUnicast() && choice.Source.Is6() {
		choice.Source = choice.Source.WithZone(choice.Interface)
	}
	return choice, o
}

// entry finds the GID of the index, or the first one: nil where the table lacks it.
func (c *chooser) entry(p PortRef, index int) *GID {
	for i := range p.Port.GIDs {
		if g := &p.Port.GIDs[i]; index == AnyGID || g.Index == index {
			return g
		}
	}
	c.noIndex = c.noIndex || index != AnyGID
	return nil
}

// byInterface is for devices whose GIDs are not addresses of IP. The source is an address of the port's network
// interface, so InfiniBand needs IPoIB.
func (c *chooser) byInterface(choice Choice, p PortRef, g *GID) (Choice, obstacle) {
	if g == nil {
		return choice, c.withoutEntry(p)
	}
	choice.GIDIndex, choice.GID = g.Index, g.Address
	var best netip.Addr
	var down []string
	all := c.interfacesOf(p)
	slices.SortStableFunc(all, func(a, b Interface) int { return a.rank() - b.rank() })
	for _, f := range all {
		for _, a := range f.Addresses {
			switch {
			case !f.Up:
				down = append(down, f.Name)
			case !best.IsValid() || rank(a) < rank(best):
				best, choice.Interface = a, f.Name
			}
		}
	}
	choice.Source = best
	if best.IsValid() {
		return choice, obstacle{}
	}
	return choice, c.withoutAddress(p, down)
}

// interfacesOf are the network interfaces of a port that this network namespace has and the request allows.
func (c *chooser) interfacesOf(p PortRef) (all []Interface) {
	for _, name := range p.Port.Interfaces {
		if f, ok := c.inventory.Interface(name); ok && c.wants(p, f.Name) {
			all = append(all, f)
		}
	}
	return all
}

// wants reports whether the request allows an interface at a port: only its own, or its bond, where it names one of
// this port.
func (c *chooser) wants(p PortRef, name string) bool {
	wanted := c.request.Interface
	if wanted == "" || name == wanted || !slices.Contains(c.of, p) {
		return true
	}
	f, _ := c.inventory.Interface(wanted)
	return f.Master == name
}

func (c *chooser) withoutAddress(p PortRef, down []string) obstacle {
	switch {
	case len(down) > 0:
		return obstacle{"its network interface is down", "ip link set " + down[0] + " up"}
	case len(p.Port.Interfaces) > 0:
		return obstacle{"its network interface has no address here", "ip addr add ADDRESS/PREFIX dev " + p.Port.Interfaces[0]}
	case p.Port.LinkLayer == LinkInfiniBand:
		return obstacle{"it has no network interface of IPoIB, by whose address peers find it", "modprobe ib_ipoib, and give the interface an address"}
	}
	return obstacle{"no network interface of this network namespace belongs to it", "give the container the network of the host, or an interface of the device"}
}

func (c *chooser) withoutEntry(p PortRef) obstacle {
	if index := c.request.GIDIndex; index != AnyGID && len(p.Port.GIDs) > 0 {
		return obstacle{fmt.Sprintf("its GID %d is empty", index), indices(p.Port.GIDs)}
	}
	return obstacle{"its GID table is empty", "give its network interface an address"}
}

// indices lists the entries that a user may set: of RoCE those of version 2.
func indices(gids []GID) string {
	const most = 8
	if second := slices.DeleteFunc(slices.Clone(gids), func(g GID) bool { return g.Type != RoCEv2 }); len(second) > 0 {
		gids = second
	}
	parts := make([]string, 0, most)
	for _, g := range gids[:min(len(gids), most)] {
		parts = append(parts, fmt.Sprintf("%d (%s, %v)", g.Index, g.Type, g))
	}
	if more := len(gids) - len(parts); more > 0 {
		return fmt.Sprintf("set one of %s, or of %d more", strings.Join(parts, ", "), more)
	}
	return "set one of " + strings.Join(parts, ", ")
}

// ofRoCE chooses among the entries of RoCE v2 whose addresses this network namespace has.
func (c *chooser) ofRoCE(choice Choice, p PortRef) (Choice, obstacle) {
	if len(p.Port.GIDs) == 0 {
		return choice, c.withoutEntry(p)
	}
	entries := p.Port.GIDs
	if c.request.GIDIndex != AnyGID {
		g := c.entry(p, c.request.GIDIndex)
		if g == nil {
			return choice, c.withoutEntry(p)
		}
		entries = []GID{*g}
	}
	sorted := slices.SortedStableFunc(slices.Values(entries), c.byChoice)
	refused := refusals{}
	for _, g := range sorted {
		why := c.refuse(p, g)
		if why == "" {
			choice.GIDIndex, choice.GID, choice.Source = g.Index, g.Address, g.IP()
			choice.Interface = cmp.Or(g.Interface, c.inventory.owner(g.IP()))
			return choice, obstacle{}
		}
		refused.add(g, why)
	}
	if c.request.GIDIndex == AnyGID {
		return choice, obstacle{refused.String(), "give its network interface an address, which makes an entry"}
	}
	c.noIndex = true
	return choice, obstacle{refused.String(), indices(p.Port.GIDs)}
}

// byChoice orders entries by the ranks of their addresses, then of their interfaces, then by their indices.
func (c *chooser) byChoice(a, b GID) int {
	return cmp.Or(rank(a.IP())-rank(b.IP()), c.interfaceRank(a)-c.interfaceRank(b), a.Index-b.Index)
}

func (c *chooser) interfaceRank(g GID) int {
	f, _ := c.inventory.Interface(g.Interface)
	return f.rank()
}

// refuse says why an entry does not fit, or "". rdma_cm finds the entry by its address. So the address must belong to
// an interface here, since devices show the entries of other network namespaces, too.
func (c *chooser) refuse(p PortRef, g GID) string {
	f, here := c.inventory.Interface(g.Interface)
	switch {
	case g.Type != RoCEv2:
		return otherType
	case g.Interface != "" && !c.wants(p, g.Interface):
		return "of another interface than " + c.request.Interface
	case here && !f.Up:
		return "of an interface that is down (ip link set " + f.Name + " up)"
	case here && f.has(g.IP()):
		return ""
	case g.Interface == "" && c.inventory.owner(g.IP()) != "":
		return ""
	}
	return "no address of this network namespace"
}

// otherType is the reason of least interest: most addresses have an entry of RoCE v1, too.
const otherType = "of another type than RoCE v2"

// refusals counts entries by the reason for which they do not fit, in the order of their appearance.
type refusals struct {
	reasons []string
	first   map[string]GID
	count   map[string]int
}

func (r *refusals) add(g GID, why string) {
	if r.count == nil {
		r.first, r.count = map[string]GID{}, map[string]int{}
	}
	if r.count[why] == 0 {
		r.reasons, r.first[why] = append(r.reasons, why), g
	}
	r.count[why]++
}

// String reads "no GID of RoCE v2 fits: GID 3 (10.0.0.7): no address of this network namespace (and 1 more)".
func (r *refusals) String() string {
	var parts []string
	for _, why := range r.reasons {
		if why == otherType && len(r.reasons) > 1 {
			continue
		}
		part := fmt.Sprintf("GID %d (%v): %s", r.first[why].Index, r.first[why].IP(), why)
		if more := r.count[why] - 1; more > 0 {
			part += fmt.Sprintf(" (and %d more)", more)
		}
		parts = append(parts, part)
	}
	return "no GID of RoCE v2 fits: " + strings.Join(parts, "; ")
}
