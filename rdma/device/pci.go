package device

import (
	"encoding/binary"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// pciPath lists the PCI functions in a link of sysfs, the host bridge "pci0000:15" first. Such a link reads
// "../../devices/pci0000:15/0000:15:01.0/0000:17:00.0/infiniband/mlx5_0". Software has no such path.
func pciPath(link string) (all []string) {
	for part := range strings.SplitSeq(link, "/") {
		if isHostBridge(part) || len(all) > 0 && isFunction(part) {
			all = append(all, part)
		}
	}
	return all
}

func isHostBridge(s string) bool {
	digits, ok := strings.CutPrefix(s, "pci")
	return ok && len(digits) >= 7 && len(digits) <= 11 && digits[len(digits)-3] == ':'
}

// isFunction reports whether s is an address of a PCI function: "0000:17:00.0". Domains of some machines have more
// digits.
func isFunction(s string) bool {
	domain, rest, ok := strings.Cut(s, ":")
	return ok && len(domain) >= 4 && len(domain) <= 8 && hexadecimal(domain) &&
		len(rest) == 7 && rest[2] == ':' && rest[5] == '.' && hexadecimal(rest[:2]+rest[3:5]+rest[6:])
}

func hexadecimal(s string) bool {
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil && !strings.HasPrefix(s, "+")
}

// Proximity is how near two functions of PCI are. Nearer is greater.
type Proximity int

// The proximities. nvidia-smi calls them SYS, NODE, PHB, and PIX or PXB.
const (
	NotKnown Proximity = iota
	OtherNode
	SameNode
	SameBridge
	SameSwitch
)

// String reads "same PCIe switch".
func (p Proximity) String() string {
	return [...]string{"not known", "another NUMA node", "same NUMA node", "same host bridge", "same PCIe switch"}[p]
}

// MarshalText is String, for JSON.
func (p Proximity) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Distance compares the ways to the same function of PCI. Less is nearer.
type Distance struct {
	Proximity Proximity
	Hops      int // bridges between them, where they have a switch in common
}

func (d Distance) compare(other Distance) int {
	if d.Proximity != other.Proximity {
		return int(other.Proximity - d.Proximity)
	}
	return d.Hops - other.Hops
}

// Accelerator is a function of PCI that computes.
type Accelerator struct {
	PCI    string `json:"pci"`
	Vendor string `json:"vendor"`
	NUMA   int    `json:"numa_node"`

	path []string
}

// vendors make accelerators, by their numbers of PCI.
var vendors = map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD", "0x1d94": "Hygon", "0x1d22": "Kunlunxin"}

// Accelerators lists those of known vendors in the order of their addresses. That is how the drivers count them with
// CUDA_DEVICE_ORDER=PCI_BUS_ID.
func (inv *Inventory) Accelerators() (all []Accelerator) {
	for _, address := range inv.machine.names(pciDir) {
		if a, ok := inv.accelerator(address); ok {
			all = append(all, a)
		}
	}
	return all
}

func (inv *Inventory) accelerator(address string) (Accelerator, bool) {
	m, dir := inv.machine, path.Join(pciDir, address)
	class := m.word(dir + "/class")
	display := strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x0380")
	if !display && !strings.HasPrefix(class, "0x1200") {
		return Accelerator{}, false
	}
	vendor := vendors[m.word(dir+"/vendor")]
	a := Accelerator{PCI: address, Vendor: vendor, NUMA: -1, path: pciPath(m.link(dir))}
	if n, err := strconv.Atoi(m.word(dir + "/numa_node")); err == nil {
		a.NUMA = n
	}
	return a, vendor != ""
}

// Distance tells how far a device is from an accelerator.
func (a Accelerator) Distance(d *Device) Distance {
	common := 0
	for common < len(a.path) && common < len(d.path) && a.path[common] == d.path[common] {
		common++
	}
	switch {
	case len(a.path) == 0 || len(d.path) == 0:
		return Distance{}
	case common > 1:
		return Distance{SameSwitch, len(a.path) + len(d.path) - 2*common}
	case common == 1:
		return Distance{Proximity: SameBridge}
	case a.NUMA >= 0 && a.NUMA == d.NUMA:
		return Distance{Proximity: SameNode}
	case a.NUMA < 0 || d.NUMA < 0:
		return Distance{}
	}
	return Distance{Proximity: OtherNode}
}

// Nearest is the device that is nearest to an accelerator, and how near. Software has no place, and is never nearest.
func (inv *Inventory) Nearest(a Accelerator) (*Device, Distance) {
	var best *Device
	var least Distance
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.Software {
			continue
		}
		if at := a.Distance(d); best == nil || at.compare(least) < 0 {
			best, least = d, at
		}
	}
	return best, least
}

// RelaxedOrdering reads from the configuration of a PCI function whether it may reorder its writes. known is false
// where the process may not read that.
func (inv *Inventory) RelaxedOrdering(pci string) (on, known bool) {
	f, err := inv.machine.Root.Open(path.Join(pciDir, pci, "config"))
	if err != nil {
		return false, false
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, 256)
	n := 0
	for n < len(b) {
		k, err := f.Read(b[n:])
		n += k
		if err != nil || k == 0 {
			break
		}
	}
	return parseRelaxedOrdering(b[:n])
}

// parseRelaxedOrdering walks the capabilities of a configuration to that of PCI Express, and reads bit 4 of its device
// control. (PCI Local Bus 3.0, 6.7; PCI Express Base 4.0, 7.5.3.4)
func parseRelaxedOrdering(b []byte) (on, known bool) {
	const status, hasList, first, express, control, relaxed = 0x06, 1 << 4, 0x34, 0x10, 8, 1 << 4
	if len(b) <= first || b[status]&hasList == 0 {
		return false, false
	}
	at := int(b[first] &^ 3)
	for range 48 { // as many as there can be, and no longer where the list is a circle
		if at < 0x40 || at+control+2 > len(b) {
			return false, false
		}
		if b[at] == express {
			return binary.LittleEndian.Uint16(b[at+control:])&relaxed != 0, true
		}
		at = int(b[at+1] &^ 3)
	}
	return false, false
}

// withoutRDMA lists network cards that could have a device and have none.
func (inv *Inventory) withoutRDMA() (all []string) {
	for _, address := range inv.machine.names(pciDir) {
		dir := path.Join(pciDir, address)
		class := inv.machine.word(dir + "/class")
		if inv.machine.word(dir+"/vendor") != mellanox || !strings.HasPrefix(class, "0x02") {
			continue
		}
		if _, err := fs.Stat(inv.machine.Root, dir+"/infiniband"); err != nil {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all
}

// mellanox is the number of the vendor of ConnectX and BlueField, all of which have RDMA.
const mellanox = "0x15b3"
