package devicetest

import (
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strings"
	"testing/fstest"
)

// Tree is a machine made of files, with its network interfaces.
type Tree struct {
	Files      fstest.MapFS
	Interfaces []Interface

	uverbs int
}

// Interface is device.Interface, to which it can be converted.
type Interface struct {
	Name      string
	Up        bool
	MTU       int
	Hardware  []byte
	Addresses []netip.Addr
	Master    string
	VLAN      int
	Parent    string
}

// New makes a machine without devices.
func New() *Tree {
	m := &Tree{Files: fstest.MapFS{}}
	m.Write("sys/module/ib_core/parameters/netns_mode", "Y")
	m.Write("sys/class/infiniband_verbs/abi_version", "6")
	return m
}

// Write makes a file of one line.
func (m *Tree) Write(name, text string) { m.Files[name] = &fstest.MapFile{Data: []byte(text + "\n")} }

// Link makes a symbolic link from name to a path below the root.
func (m *Tree) Link(name, to string) {
	up := strings.Repeat("../", strings.Count(name, "/"))
	m.Files[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(up + to)}
}

// Device is a device to make. Its zero values make healthy hardware.
type Device struct {
	Name     string
	At       string // below /sys/devices; "" is a software device
	Driver   string // "mlx5_core"
	Node     string // "1: CA"
	NUMA     string // "0"
	Net      string // names of interfaces of the function, in the order of their ports
	PhysFn   string // of a virtual function, below /sys/devices
	Parent   string // of soft-RoCE: the interface
	NoUverbs bool
	Ports    []Port
}

// Port is a port to make. Its zero values make a healthy one of Ethernet.
type Port struct {
	State, Physical, Link, Rate string
	GIDs                        []string // "INDEX GID TYPE INTERFACE": a type or an interface of "-" has no file
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Device makes a device.
func (m *Tree) Device(f Device) {
	function := "sys/devices/" + or(f.At, "virtual")
	dir := function + "/infiniband/" + f.Name
	m.Link("sys/class/infiniband/"+f.Name, dir)
	m.Write(dir+"/node_type", or(f.Node, "1: CA"))
	m.Write(dir+"/node_guid", "b83f:d203:0011:2233")
	m.Write(dir+"/fw_ver", "28.39.1002")
	if f.Parent != "" {
		m.Write(dir+"/parent", f.Parent)
	}
	if f.At != "" {
		m.PCI(f.At, or(f.Driver, "mlx5_core"), f.NUMA)
		m.Link(dir+"/device", function)
		for i, name := range strings.Fields(f.Net) {
			m.Write(function+"/net/"+name+"/dev_port", fmt.Sprint(i))
		}
		if f.PhysFn != "" {
			m.Link(function+"/physfn", "sys/devices/"+f.PhysFn)
		}
	}
	if !f.NoUverbs {
		m.Write(fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", m.uverbs), f.Name)
		m.uverbs++
	}
	for i, p := range f.Ports {
		m.port(fmt.Sprintf("%s/ports/%d", dir, i+1), p)
	}
}

// PCI makes a function of PCI.
func (m *Tree) PCI(at, driver, numa string) {
	m.Link("sys/bus/pci/devices/"+path.Base(at), "sys/devices/"+at)
	m.Link("sys/devices/"+at+"/driver", "sys/bus/pci/drivers/"+driver)
	m.Write("sys/bus/pci/drivers/"+driver+"/module/version", "1")
	m.Write("sys/devices/"+at+"/numa_node", or(numa, "0"))
}

// Accelerator makes one of NVIDIA.
func (m *Tree) Accelerator(at, numa string) {
	m.PCI(at, "nvidia", numa)
	m.Write("sys/devices/"+at+"/class", "0x030200")
	m.Write("sys/devices/"+at+"/vendor", "0x10de")
}

func (m *Tree) port(dir string, p Port) {
	m.Write(dir+"/state", or(p.State, "4: ACTIVE"))
	m.Write(dir+"/phys_state", or(p.Physical, "5: LinkUp"))
	m.Write(dir+"/link_layer", or(p.Link, "Ethernet"))
	m.Write(dir+"/rate", or(p.Rate, "400 Gb/sec (4X NDR)"))
	m.Write(dir+"/gids/999", "0000:0000:0000:0000:0000:0000:0000:0000")
	for _, line := range p.GIDs {
		index, rest, _ := strings.Cut(line, " ")
		gid, rest, _ := strings.Cut(rest, " ")
		i := strings.LastIndexByte(rest, ' ')
		m.Write(dir+"/gids/"+index, gid)
		if kind := rest[:i]; kind != "-" {
			m.Write(dir+"/gid_attrs/types/"+index, kind)
		}
		if name := rest[i+1:]; name != "-" {
			m.Write(dir+"/gid_attrs/ndevs/"+index, name)
		}
	}
}

// RoCE lists the entries that a kernel makes for an address of an interface, from an index on: v1 and v2.
func RoCE(index int, address, iface string) []string {
	a := netip.AddrFrom16(netip.MustParseAddr(address).As16())
	gid := a.StringExpanded()
	if a.Is4In6() {
		b := a.As16()
		gid = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[12], b[13], b[14], b[15])
	}
	return []string{fmt.Sprintf("%d %s IB/RoCE v1 %s", index, gid, iface), fmt.Sprintf("%d %s RoCE v2 %s", index+1, gid, iface)}
}

// Net adds a network interface: "10.0.0.1 fe80::1". A leading "down" says its state.
func (m *Tree) Net(name, addresses string) *Interface {
	f := Interface{Name: name, Up: true, MTU: 9000}
	for _, word := range strings.Fields(addresses) {
		if word == "down" {
			f.Up = false
			continue
		}
		f.Addresses = append(f.Addresses, netip.MustParseAddr(word))
	}
	m.Interfaces = append(m.Interfaces, f)
	return &m.Interfaces[len(m.Interfaces)-1]
}

// Places of PCI functions.
const (
	Card0    = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"
	Card1    = "pci0000:37/0000:37:01.0/0000:38:00.0/0000:3a:00.0"
	Virtual0 = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.2"
)

// Rail makes a healthy port of RoCE with an address, as mlx5 makes it.
func (m *Tree) Rail(name, at, iface, address string) {
	local := fmt.Sprintf("fe80::%d", 1+len(m.Interfaces))
	m.Net(iface, local+" "+address)
	m.Device(Device{Name: name, At: at, Net: iface, Ports: []Port{{GIDs: append(RoCE(0, local, iface), RoCE(2, address, iface)...)}}})
}
