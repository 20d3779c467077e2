package device

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tree is a machine made of files, with its network interfaces.
type tree struct {
	t          *testing.T
	files      fstest.MapFS
	interfaces []Interface
	mapped     map[string]string // what rdmamap says
	uverbs     int
}

func newTree(t *testing.T) *tree {
	m := &tree{t: t, files: fstest.MapFS{}, mapped: map[string]string{}}
	m.write("sys/module/ib_core/parameters/netns_mode", "Y")
	m.write("sys/class/infiniband_verbs/abi_version", "6")
	return m
}

func (m *tree) write(name, text string) { m.files[name] = &fstest.MapFile{Data: []byte(text + "\n")} }

// link makes a symbolic link from name to a path below the root.
func (m *tree) link(name, to string) {
	up := strings.Repeat("../", strings.Count(name, "/"))
	m.files[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(up + to)}
}

// fake is a device to make. Its zero values make a healthy port of Ethernet.
type fake struct {
	name     string
	at       string // below /sys/devices; "" is a software device
	driver   string
	node     string
	numa     string
	net      string // names of interfaces of the function, in the order of their ports
	physfn   string
	parent   string
	noUverbs bool
	ports    []fakePort
}

type fakePort struct {
	state, physical, link, rate string
	gids                        []string // "INDEX GID TYPE INTERFACE": a type of "-" has no file
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (m *tree) device(f fake) {
	function := "sys/devices/" + or(f.at, "virtual")
	dir := function + "/infiniband/" + f.name
	m.link("sys/class/infiniband/"+f.name, dir)
	m.write(dir+"/node_type", or(f.node, "1: CA"))
	m.write(dir+"/node_guid", "b83f:d203:0011:2233")
	m.write(dir+"/fw_ver", "28.39.1002")
	if f.parent != "" {
		m.write(dir+"/parent", f.parent)
	}
	if f.at != "" {
		m.pci(f.at, or(f.driver, "mlx5_core"), f.numa)
		m.link(dir+"/device", function)
		for i, name := range strings.Fields(f.net) {
			m.write(function+"/net/"+name+"/dev_port", fmt.Sprint(i))
		}
		if f.physfn != "" {
			m.link(function+"/physfn", "sys/devices/"+f.physfn)
		}
	}
	if !f.noUverbs {
		m.write(fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", m.uverbs), f.name)
		m.uverbs++
	}
	for i, p := range f.ports {
		m.port(fmt.Sprintf("%s/ports/%d", dir, i+1), p)
	}
}

func (m *tree) pci(at, driver, numa string) {
	m.link("sys/bus/pci/devices/"+path.Base(at), "sys/devices/"+at)
	m.link("sys/devices/"+at+"/driver", "sys/bus/pci/drivers/"+driver)
	m.write("sys/bus/pci/drivers/"+driver+"/module/version", "1")
	m.write("sys/devices/"+at+"/numa_node", or(numa, "0"))
}

// accelerator makes one of NVIDIA.
func (m *tree) accelerator(at, numa string) {
	m.pci(at, "nvidia", numa)
	m.write("sys/devices/"+at+"/class", "0x030200")
	m.write("sys/devices/"+at+"/vendor", "0x10de")
}

func (m *tree) port(dir string, p fakePort) {
	m.write(dir+"/state", or(p.state, "4: ACTIVE"))
	m.write(dir+"/phys_state", or(p.physical, "5: LinkUp"))
	m.write(dir+"/link_layer", or(p.link, "Ethernet"))
	m.write(dir+"/rate", or(p.rate, "400 Gb/sec (4X NDR)"))
	m.write(dir+"/gids/999", "0000:0000:0000:0000:0000:0000:0000:0000")
	for _, line := range p.gids {
		index, rest, _ := strings.Cut(line, " ")
		gid, rest, _ := strings.Cut(rest, " ")
		i := strings.LastIndexByte(rest, ' ')
		m.write(dir+"/gids/"+index, gid)
		if kind := rest[:i]; kind != "-" {
			m.write(dir+"/gid_attrs/types/"+index, kind)
		}
		if name := rest[i+1:]; name != "-" {
			m.write(dir+"/gid_attrs/ndevs/"+index, name)
		}
	}
}

// roce lists the entries that a kernel makes for an address of an interface, from an index on: v1 and v2.
func roce(index int, address, iface string) []string {
	a := netip.AddrFrom16(netip.MustParseAddr(address).As16())
	gid := a.StringExpanded()
	if a.Is4In6() {
		b := a.As16()
		gid = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[12], b[13], b[14], b[15])
	}
	return []string{fmt.Sprintf("%d %s IB/RoCE v1 %s", index, gid, iface), fmt.Sprintf("%d %s RoCE v2 %s", index+1, gid, iface)}
}

// net adds a network interface: "10.0.0.1 fe80::1". A leading "down" says its state.
func (m *tree) net(name, addresses string) *Interface {
	f := Interface{Name: name, Up: true, MTU: 9000}
	for _, word := range strings.Fields(addresses) {
		if word == "down" {
			f.Up = false
			continue
		}
		f.Addresses = append(f.Addresses, netip.MustParseAddr(word))
	}
	m.interfaces = append(m.interfaces, f)
	return &m.interfaces[len(m.interfaces)-1]
}

func (m *tree) machine() Machine {
	return Machine{
		Root:       m.files,
		Interfaces: func() ([]Interface, error) { return m.interfaces, nil },
		DeviceOf: func(name string) (string, error) {
			if d := m.mapped[name]; d != "" {
				return d, nil
			}
			return "", errors.New("rdmamap knows nothing")
		},
	}
}

func (m *tree) read() *Inventory {
	m.t.Helper()
	inv, err := m.machine().Read()
	require.NoError(m.t, err)
	return inv
}

// choose writes the outcome in lines: the choices, the ports that are skipped, the notes.
func choose(t *testing.T, inv *Inventory, r Request) string {
	t.Helper()
	s, err := inv.Choose(r)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, c := range s.Choices {
		lines = append(lines, c.String())
	}
	for _, k := range s.Skipped {
		lines = append(lines, k.String())
	}
	return strings.Join(append(lines, s.Notes...), "\n")
}

// Places of PCI functions.
const (
	nic0 = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"
	nic1 = "pci0000:37/0000:37:01.0/0000:38:00.0/0000:3a:00.0"
	vf0  = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.2"
)

// rail is a healthy port of RoCE with an address, as mlx5 makes it.
func (m *tree) rail(name, at, iface, address string) {
	local := fmt.Sprintf("fe80::%d", 1+len(m.interfaces))
	m.net(iface, local+" "+address)
	m.device(fake{name: name, at: at, net: iface, ports: []fakePort{{gids: append(roce(0, local, iface), roce(2, address, iface)...)}}})
}
