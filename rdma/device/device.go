package device

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stepvan/stepvan/internal/text"
)

// Transport is the protocol family of a device.
type Transport string

// The transports. Others have no reliable connections: EFA, usNIC.
const (
	InfiniBand Transport = "InfiniBand" // RoCE too
	IWARP      Transport = "iWARP"
	Other      Transport = "other"
)

// Device is an RDMA device as the kernel shows it.
type Device struct {
	Name      string    `json:"name"` // "mlx5_0"
	Transport Transport `json:"transport"`
	NodeType  string    `json:"node_type"` // what the kernel calls it: "CA"
	Driver    string    `json:"driver"`    // "mlx5_core"; "" where it is not known
	Software  bool      `json:"software"`  // a driver does the work of the hardware: soft-RoCE, soft-iWARP
	PCI       string    `json:"pci,omitempty"`
	Virtual   bool      `json:"virtual_function"`
	NUMA      int       `json:"numa_node"` // -1: not known, or there is only one
	GUID      string    `json:"node_guid"`
	Firmware  string    `json:"firmware,omitempty"`
	Board     string    `json:"board,omitempty"`
	Uverbs    string    `json:"uverbs"` // file below /dev/infiniband; "" without ib_uverbs
	Ports     []Port    `json:"ports"`
	Problems  []string  `json:"problems,omitempty"` // what could not be read or understood

	path []string // the PCI functions from the root to the device, the host bridge first
}

// mostProblems is how many a device tells of.
const mostProblems = 8

// problem notes what is wrong with a file of the device.
func (d *Device) problem(file, format string, args ...any) {
	if len(d.Problems) < mostProblems {
		d.Problems = append(d.Problems, file+": "+text.Line(fmt.Sprintf(format, args...), 200))
	}
}

// devices lists the names of devices in natural order.
func (m Machine) devices() ([]string, error) {
	list, err := fs.ReadDir(m.Root, deviceDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("RDMA devices cannot be listed: %w", err)
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name())
	}
	slices.SortFunc(names, natural)
	return names, nil
}

// natural compares names with their numbers as numbers: mlx5_9 is before mlx5_10.
func natural(a, b string) int {
	stemA, numberA := trailingNumber(a)
	stemB, numberB := trailingNumber(b)
	return cmp.Or(cmp.Compare(stemA, stemB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}

func trailingNumber(s string) (stem string, n int) {
	stem = strings.TrimRight(s, "0123456789")
	n, _ = strconv.Atoi(s[len(stem):]) // none is 0
	return stem, n
}

// uverbs maps devices to their files below /dev/infiniband.
func (m Machine) uverbs() map[string]string {
	files := map[string]string{}
	for _, name := range m.names(verbsDir) {
		if d := m.word(path.Join(verbsDir, name, "ibdev")); d != "" {
			files[d] = name
		}
	}
	return files
}

// reader reads devices beside known network interfaces.
type reader struct {
	Machine
	interfaces []Interface
}

func (r reader) device(name string) Device {
	dir := path.Join(deviceDir, name)
	d := Device{
		Name:     name,
		GUID:     r.word(dir + "/node_guid"),
		Firmware: r.word(dir + "/fw_ver"),
		Board:    r.word(dir + "/board_id"),
		NUMA:     -1,
		Ports:    []Port{},
	}
	d.path = pciPath(r.link(dir))
	if len(d.path) > 1 {
		d.PCI = d.path[len(d.path)-1]
	}
	r.transport(&d, dir)
	r.hardware(&d, dir)
	r.ports(&d, dir)
	return d
}

// transport reads "1: CA" or "4: RNIC".
func (r reader) transport(d *Device, dir string) {
	node, err := r.text(dir + "/node_type")
	if err != nil {
		d.problem("node_type", "%v", plain(err))
	}
	number, word, _ := strings.Cut(node, ":")
	d.NodeType = text.Line(strings.TrimSpace(word), 32)
	switch number {
	case "1":
		d.Transport = InfiniBand
	case "4":
		d.Transport = IWARP
	default:
		d.Transport = Other
	}
}

// hardware tells what the device is made of. soft-RoCE and soft-iWARP have no function of PCI. The soft-RoCE of older
// kernels shows that of the network card; only its file "parent" gives it away.
func (r reader) hardware(d *Device, dir string) {
	parent := r.word(dir + "/parent")
	d.Software = d.PCI == "" && strings.Contains(r.link(dir), "/virtual/") || parent != ""
	switch {
	case parent != "":
		d.Driver = "rdma_rxe"
	case d.Software && d.Transport == IWARP:
		d.Driver = "siw"
	default:
		d.Driver = path.Base(r.link(dir + "/device/driver"))
		if d.Driver == "." {
			d.Driver = ""
		}
	}
	if d.Software {
		d.PCI, d.path = "", nil
		return
	}
	if n, err := strconv.Atoi(r.word(dir + "/device/numa_node")); err == nil {
		d.NUMA = n
	}
	d.Virtual = r.link(dir+"/device/physfn") != ""
}

// plain is an error of a file without its path, which the reader knows.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
