package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func newEmpty() fs.FS { return fstest.MapFS{} }

func TestWhatIsReadOfADevice(t *testing.T) {
	inv := twoRails(t).read()
	d := inv.Devices[0]
	require.Equal(t, "mlx5_0", d.Name)
	require.Equal(t, InfiniBand, d.Transport)
	require.Equal(t, "CA", d.NodeType)
	require.Equal(t, "mlx5_core", d.Driver)
	require.False(t, d.Software)
	require.Equal(t, "0000:17:00.0", d.PCI)
	require.Equal(t, 0, d.NUMA)
	require.Equal(t, "uverbs0", d.Uverbs)
	require.Empty(t, d.Problems)
	p := d.Ports[0]
	require.True(t, p.Active)
	require.Equal(t, "ACTIVE", p.State)
	require.Equal(t, "LinkUp", p.Physical)
	require.InDelta(t, 400, p.Rate, 0)
	require.Equal(t, "4X NDR", p.Lanes)
	require.Equal(t, LinkEthernet, p.LinkLayer)
	require.Equal(t, 4096, p.MTU)
	require.Equal(t, 4096, p.MaxMTU)
	require.Len(t, p.GIDs, 4)
	require.Equal(t, RoCEv1, p.GIDs[0].Type)
	require.Equal(t, RoCEv2, p.GIDs[1].Type)
	require.Equal(t, []string{"eth0"}, p.Interfaces)
	require.False(t, inv.Exclusive)
	_, err := json.Marshal(inv)
	require.NoError(t, err)
}

func TestDevicesAreInNaturalOrder(t *testing.T) {
	var names []string
	for _, d := range twoRails(t).read().Devices {
		names = append(names, d.Name)
	}
	require.Equal(t, []string{"mlx5_0", "mlx5_2", "mlx5_10", "rxe0"}, names)
}

func TestMTUs(t *testing.T) {
	for of, want := range map[int]int{9000: 4096, 4192: 4096, 4191: 2048, 1500: 1024, 600: 256, 352: 256, 351: 0, 0: 0} {
		require.Equal(t, want, ethernetMTU(InfiniBand, of), of)
	}
	require.Equal(t, 4096, ethernetMTU(IWARP, 4096))
	m := twoRails(t).machine()
	m.PathMTU = func(device string, port int) (int, int, error) {
		if device != "mlx5_0" {
			return 0, 0, errors.New("cannot be opened")
		}
		return 1024 * port, 2048, nil
	}
	inv, err := m.Read()
	require.NoError(t, err)
	require.Equal(t, 1024, inv.Devices[0].Ports[0].MTU, "what the device says")
	require.Equal(t, 2048, inv.Devices[0].Ports[0].MaxMTU)
	require.Equal(t, 4096, inv.Devices[2].Ports[0].MTU, "what follows from the network interface")
}

// Two ports of one function have interfaces of their own.
func TestTwoPortsOfAFunction(t *testing.T) {
	m := newTree(t)
	m.Net("eth0", "10.0.0.1")
	m.Net("eth1", "10.0.1.1")
	m.Device(fake{Name: "mlx4_0", At: nic0, Net: "eth0 eth1", Ports: []fakePort{{GIDs: roce(0, "10.0.0.1", "eth0")}, {State: "1: DOWN", Physical: "3: Disabled"}}})
	inv := m.read()
	require.Equal(t, []string{"eth0"}, inv.Devices[0].Ports[0].Interfaces)
	require.Equal(t, []string{"eth1"}, inv.Devices[0].Ports[1].Interfaces)
	require.Contains(t, choose(t, inv, request(t, "")), "mlx4_0 port 2 is not used: it is not active (state DOWN, physical state Disabled): ip link set eth1 up")
}

// Whatever file is missing, empty, a folder or garbage: the others are read, and the device says what is wrong.
func TestBrokenFiles(t *testing.T) {
	garbage := strings.Repeat("\x00\xff\x1b[31m", 3000)
	whole := twoRails(t)
	for name := range whole.Files {
		if !strings.HasPrefix(name, "sys/") {
			continue
		}
		for kind, broken := range map[string]*fstest.MapFile{
			"missing": nil, "empty": {}, "garbage": {Data: []byte(garbage)}, "a folder": {Mode: fs.ModeDir}, "a link to nowhere": {Mode: fs.ModeSymlink, Data: []byte("../nowhere")},
		} {
			m := twoRails(t)
			m.Files[name] = broken
			if broken == nil {
				delete(m.Files, name)
			}
			inv := m.read()
			s, err := inv.Choose(request(t, ""))
			require.NoError(t, err, "%s is %s", name, kind)
			require.NotEmpty(t, s.Choices, "%s is %s: the other card stays", name, kind)
			for _, d := range inv.Devices {
				require.LessOrEqual(t, len(d.Problems), mostProblems)
				for _, p := range d.Problems {
					require.NotContains(t, p, "\x1b")
					require.Less(t, len(p), 400)
				}
			}
		}
	}
}

func TestProblemsAreTold(t *testing.T) {
	const port = "sys/devices/" + nic0 + "/infiniband/mlx5_0/ports/"
	for name, want := range map[string]string{
		"1/state":             "ports/1/state: file does not exist",
		"1/rate":              "ports/1/rate: is not a rate",
		"1/gids/3":            `ports/1/gids/3: is not a GID: "fe80::1%eth0"`,
		"1/gid_attrs/types/3": "ports/1/gid_attrs/types/3: the kernel tells no type",
		"zero/state":          "ports/zero: is not the number of a port",
	} {
		m := twoRails(t)
		switch name {
		case "1/state", "1/gid_attrs/types/3":
			delete(m.Files, port+name)
		default:
			m.Write(port+name, "fe80::1%eth0")
		}
		require.Contains(t, m.read().Devices[0].Problems, want)
	}
	m := newTree(t)
	m.Device(fake{Name: "mlx5_0", At: nic0})
	require.Equal(t, []string{"ports: the kernel shows none"}, m.read().Devices[0].Problems)
}

func TestTenThousandGIDs(t *testing.T) {
	m := newTree(t)
	m.Net("eth0", "10.0.39.16")
	var gids []string
	for i := range 10_000 {
		gids = append(gids, fmt.Sprintf("%d 0000:0000:0000:0000:0000:ffff:0a00:%04x RoCE v2 eth0", i, i+1))
	}
	m.Device(fake{Name: "mlx5_0", At: nic0, Net: "eth0", Ports: []fakePort{{GIDs: gids}}})
	inv := m.read()
	require.Len(t, inv.Devices[0].Ports[0].GIDs, 10_000)
	require.Equal(t, "mlx5_0 port 1, GID 9999 (10.0.39.16 of eth0)", choose(t, inv, request(t, "")))
	require.Less(t, len(choose(t, inv, request(t, "gid=20000"))), 1000, "an error lists a few of them")
	m.Interfaces = nil
	require.Less(t, len(choose(t, m.read(), request(t, ""))), 1000)
}

func FuzzTexts(f *testing.F) {
	for _, s := range []string{"4: ACTIVE", "400 Gb/sec (4X NDR)", "2.5 Gb/sec", "fe80:0000:0000:0000:0000:00ff:fe77:0001", "eth0.100 | 100 | eth0", "mlx5_10",
		"../../devices/pci0000:15/0000:15:01.0/0000:17:00.0/infiniband/mlx5_0", "nan Gb/sec", "::ffff:1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, word := parseState(s)
		rate, lanes, ok := parseRate(s)
		require.Equal(t, ok, ok && rate >= 0)
		require.LessOrEqual(t, len(word)+len(lanes), 200)
		if a, err := parseGID(s); err == nil {
			require.Len(t, a.AsSlice(), 16)
		}
		for _, v := range parseVLANs(s) {
			require.Positive(t, v.id)
		}
		all := pciPath(s)
		require.False(t, len(all) > 0 && !isHostBridge(all[0]))
		require.Zero(t, natural(s, s))
	})
}

func FuzzRelaxedOrdering(f *testing.F) {
	f.Add(configuration(0x2810))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		on, known := parseRelaxedOrdering(b)
		require.True(t, known || !on)
	})
}
