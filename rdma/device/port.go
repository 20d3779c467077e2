package device

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// LinkLayer is what a port speaks.
type LinkLayer string

// The link layers.
const (
	LinkInfiniBand LinkLayer = "InfiniBand"
	LinkEthernet   LinkLayer = "Ethernet"
)

// Port is a port of a device. Ports count from 1.
type Port struct {
	Number    int       `json:"port"`
	State     string    `json:"state"`          // "ACTIVE", "DOWN", ...; "" where it cannot be read
	Physical  string    `json:"physical_state"` // "LinkUp", "Polling", "Disabled", ...
	Active    bool      `json:"active"`
	LinkLayer LinkLayer `json:"link_layer"`
	Rate      float64   `json:"rate_gbps"` // 0 where it is not known
	Lanes     string    `json:"lanes"`     // "4X HDR"
	MTU       int       `json:"mtu"`       // of the path, in bytes; 0 where it is not known
	MaxMTU    int       `json:"max_mtu"`
	GIDs      []GID     `json:"gids"`
	// Interfaces are the network interfaces of the port, that of the function itself first.
	Interfaces []string `json:"interfaces"`
}

func (r reader) ports(d *Device, dir string) {
	for _, name := range r.names(dir + "/ports") {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 {
			d.problem("ports/"+text.Line(name, 32), "is not the number of a port")
		}
		if err != nil || n < 1 || n > lastPort {
			continue
		}
		d.Ports = append(d.Ports, r.port(d, path.Join(dir, "ports", name), n))
	}
	slices.SortFunc(d.Ports, func(a, b Port) int { return a.Number - b.Number })
	if len(d.Ports) == 0 {
		d.problem("ports", "the kernel shows none")
	}
}

func (r reader) port(d *Device, dir string, n int) Port {
	p := Port{Number: n, GIDs: []GID{}, Interfaces: []string{}}
	file := func(name string) string {
		s, err := r.text(dir + "/" + name)
		if err != nil {
			d.problem("ports/"+strconv.Itoa(n)+"/"+name, "%v", plain(err))
		}
		return s
	}
	var state int
	state, p.State = parseState(file("state"))
	p.Active = state == portActive
	_, p.Physical = parseState(file("phys_state"))
	p.LinkLayer = LinkLayer(text.Line(file("link_layer"), 32))
	var ok bool
	if p.Rate, p.Lanes, ok = parseRate(file("rate")); !ok {
		d.problem("ports/"+strconv.Itoa(n)+"/rate", "is not a rate")
	}
	p.GIDs = append(p.GIDs, r.gids(d, dir, &p)...)
	p.Interfaces = append(p.Interfaces, r.portInterfaces(d, &p)...)
	r.mtu(d, &p)
	return p
}

// lastPort is the last one that libibverbs can name. Those behind it belong to virtual functions.
const lastPort = 255

// portActive is the state of a port that carries messages.
const portActive = 4

// parseState reads "4: ACTIVE". The number is 0 for other texts.
func parseState(s string) (number int, word string) {
	digits, word, ok := strings.Cut(s, ":")
	number, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return 0, ""
	}
	return number, text.Line(strings.TrimSpace(word), 32)
}

// parseRate reads "200 Gb/sec (4X HDR)". The text of the lanes may be missing.
func parseRate(s string) (gbps float64, lanes string, ok bool) {
	number, rest, _ := strings.Cut(s, " ")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(rest, "Gb/sec") || !(gbps >= 0 && gbps < 1e6) {
		return 0, "", false
	}
	_, lanes, _ = strings.Cut(rest, "(")
	return gbps, text.Line(strings.TrimSuffix(lanes, ")"), 32), true
}

// portInterfaces finds the network interfaces of a port. Those of the function come first, since the GID table may be
// empty while they are down; then those of the GIDs.
func (r reader) portInterfaces(d *Device, p *Port) (names []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	dir := path.Join(deviceDir, d.Name)
	add(r.word(dir + "/parent"))
	switch {
	case d.Transport == IWARP || p.LinkLayer == LinkInfiniBand:
		for _, g := range p.GIDs {
			for _, f := range r.interfaces {
				if g.ofHardware(f.Hardware) {
					add(f.Name)
				}
			}
		}
	case !d.Software:
		for _, name := range r.names(dir + "/device/net") {
			if r.onPort(path.Join(dir, "device/net", name), len(d.Ports)+1, p.Number) {
				add(name)
			}
		}
	}
	for _, g := range p.GIDs {
		add(g.Interface)
	}
	return names
}

// onPort compares a network interface's port of the card with that of the device. Most cards have a function for each
// port, and count from 0.
func (r reader) onPort(dir string, ports, number int) bool {
	n, err := strconv.Atoi(r.word(dir + "/dev_port"))
	return err != nil || n == number-1 || ports == 1 && n == 0
}

// mtu asks the device, or derives the MTU of Ethernet from that of the network interface.
func (r reader) mtu(d *Device, p *Port) {
	if r.PathMTU != nil {
		if active, greatest, err := r.PathMTU(d.Name, p.Number); err == nil {
			p.MTU, p.MaxMTU = active, greatest
			return
		}
	}
	if p.LinkLayer != LinkEthernet {
		return
	}
	for _, name := range p.Interfaces {
		if f, ok := find(r.interfaces, name); ok {
			p.MTU, p.MaxMTU = ethernetMTU(d.Transport, f.MTU), greatestMTU
			return
		}
	}
}

const (
	greatestMTU = 4096
	// roceHeaders are the bytes of a frame that the kernel sets aside for headers of RoCE.
	roceHeaders = 96
)

// ethernetMTU is the MTU that the kernel derives from that of an interface: a power of two from 256 to 4096.
func ethernetMTU(t Transport, of int) int {
	if t == InfiniBand {
		of -= roceHeaders
	}
	for n := greatestMTU; n >= 256; n /= 2 {
		if of >= n {
			return n
		}
	}
	return 0
}

// ofHardware reports whether the entry is made of a hardware address. One of IPoIB has 20 bytes, and the last 16 are
// the GID of its port. One of Ethernet has 6, with which an entry of iWARP begins.
func (g GID) ofHardware(address []byte) bool {
	gid := g.Address.As16()
	switch len(address) {
	case ipoibAddress:
		return bytes.Equal(address[4:], gid[:])
	case 6:
		return bytes.Equal(address, gid[:6]) && bytes.Equal(gid[6:], make([]byte, 10))
	}
	return false
}

// ipoibAddress is the length of a hardware address of IPoIB.
const ipoibAddress = 20
