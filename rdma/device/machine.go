package device

import (
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// Machine is how an inventory is taken. Tests have others than [ThisMachine].
type Machine struct {
	Root       fs.FS // with sys and proc
	Interfaces func() ([]Interface, error)
	DeviceOf   func(iface string) (device string, err error) // rdmamap; nil: nothing is known
	// PathMTU asks a device for the active and the greatest MTU of a port. nil, or an error: what sysfs tells must do.
	PathMTU func(device string, port int) (active, greatest int, err error)
}

// ThisMachine reads the machine of this process.
func ThisMachine() Machine {
	return Machine{Root: os.DirFS("/"), Interfaces: interfaces, DeviceOf: mapped}
}

// longestText is the size of the pages in which sysfs writes.
const longestText = 4096

// text reads a file, without the space around it.
func (m Machine) text(name string) (string, error) {
	f, err := m.Root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, longestText))
	return strings.TrimSpace(string(b)), err
}

// word is text for what may be missing: "" then.
func (m Machine) word(name string) string {
	s, _ := m.text(name)
	return s
}

// link reads where a symbolic link leads: "" for other files.
func (m Machine) link(name string) string {
	s, _ := fs.ReadLink(m.Root, name)
	return s
}

// names lists a folder, none where it is missing.
func (m Machine) names(dir string) []string {
	list, _ := fs.ReadDir(m.Root, dir)
	all := make([]string, 0, len(list))
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// Inventory is what a machine had when it was read.
type Inventory struct {
	Devices    []Device    `json:"devices"`
	Interfaces []Interface `json:"-"` // none without devices: some machines have thousands
	// Exclusive: a device belongs to one network namespace. Otherwise all of them share it.
	Exclusive bool `json:"exclusive_namespaces"`

	machine Machine
}

const (
	deviceDir = "sys/class/infiniband"
	verbsDir  = "sys/class/infiniband_verbs"
	netDir    = "sys/class/net"
	pciDir    = "sys/bus/pci/devices"
	netnsMode = "sys/module/ib_core/parameters/netns_mode"
)

// Read takes the inventory. A machine without devices gives an empty one. The error says that they, or the network
// interfaces, cannot be listed.
func (m Machine) Read() (*Inventory, error) {
	inv := &Inventory{Devices: []Device{}, Exclusive: strings.HasPrefix(m.word(netnsMode), "N"), machine: m}
	names, err := m.devices()
	if err != nil || len(names) == 0 {
		return inv, err
	}
	if inv.Interfaces, err = m.Interfaces(); err != nil {
		return inv, err
	}
	m.complete(inv.Interfaces)
	uverbs := m.uverbs()
	for _, name := range names {
		d := reader{Machine: m, interfaces: inv.Interfaces}.device(name)
		d.Uverbs = uverbs[name]
		inv.Devices = append(inv.Devices, d)
	}
	return inv, nil
}

// Interface finds a network interface.
func (inv *Inventory) Interface(name string) (Interface, bool) { return find(inv.Interfaces, name) }

func find(all []Interface, name string) (Interface, bool) {
	for _, f := range all {
		if f.Name == name {
			return f, true
		}
	}
	return Interface{}, false
}

// owner is the interface that has an address: "" for none.
func (inv *Inventory) owner(a netip.Addr) string {
	for _, f := range inv.Interfaces {
		if f.has(a) {
			return f.Name
		}
	}
	return ""
}
