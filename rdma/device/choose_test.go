package device

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/rdma/device/devicelist"
)

// request is made of words: a list of devices, iface=NAME, gid=INDEX.
func request(t *testing.T, words string) Request {
	t.Helper()
	r := Request{GIDIndex: AnyGID}
	for word := range strings.FieldsSeq(words) {
		if name, ok := strings.CutPrefix(word, "iface="); ok {
			r.Interface = name
		} else if digits, ok := strings.CutPrefix(word, "gid="); ok {
			_, err := fmt.Sscan(digits, &r.GIDIndex)
			require.NoError(t, err)
		} else {
			l, err := devicelist.Parse(word)
			require.NoError(t, err)
			r.Devices = l
		}
	}
	return r
}

// twoRails has two healthy cards, a card without cable, and soft-RoCE on the first one.
func twoRails(t *testing.T) *tree {
	m := newTree(t)
	m.Net("lo", "127.0.0.1 ::1")
	m.Rail("mlx5_0", nic0, "eth0", "10.0.0.1")
	m.Rail("mlx5_10", nic1, "eth1", "10.0.1.1")
	m.Net("eth2", "down")
	m.Device(fake{Name: "mlx5_2", At: "pci0000:37/0000:37:02.0/0000:40:00.0", Net: "eth2", Ports: []fakePort{{State: "1: DOWN", Physical: "3: Disabled", Rate: "25 Gb/sec (1X EDR)"}}})
	m.Net("eno1", "192.168.0.5")
	m.Device(fake{Name: "rxe0", Parent: "eth0", Ports: []fakePort{{Rate: "10 Gb/sec (1X FDR10)", GIDs: roce(0, "10.0.0.1", "eth0")}}})
	return m
}

func TestChoicesOfTwoRails(t *testing.T) {
	inv := twoRails(t).read()
	const (
		first    = "mlx5_0 port 1, GID 3 (10.0.0.1 of eth0)\n"
		second   = "mlx5_10 port 1, GID 3 (10.0.1.1 of eth1)\n"
		down     = "mlx5_2 port 1 is not used: it is not active (state DOWN, physical state Disabled): ip link set eth2 up\n"
		software = "rxe0 port 1 is not used: it is software, and the machine has hardware: change the setting to use it\n"
		soft     = "rxe0 port 1, GID 1 (10.0.0.1 of eth0)\n"
		local    = "mlx5_0 port 1, GID 1 (fe80::2 of eth0)\nmlx5_10 port 1, GID 1 (fe80::3 of eth1)\n"
	)
	left := func(name string) string {
		return name + " port 1 is not used: the list of devices leaves it out: change the setting to use it\n"
	}
	apart := func(name string) string {
		return name + " port 1 is not used: it does not belong to the interface eth1: change the setting to use it\n"
	}
	for words, want := range map[string]string{
		"":                        first + second + down + software,
		"iface=auto":              first + second + down + software,
		"mlx5":                    first + second + down + left("rxe0"),
		"mlx5_1":                  second + left("mlx5_0") + left("mlx5_2") + left("rxe0"),
		"=mlx5_10,mlx5_0":         second + first + left("mlx5_2") + left("rxe0"),
		"^mlx5_1":                 first + left("mlx5_10") + down + software,
		"=rxe0":                   soft + left("mlx5_0") + left("mlx5_2") + left("mlx5_10"),
		"mlx5_2":                  down + left("mlx5_0") + left("mlx5_10") + left("rxe0"),
		"iface=eth1":              second + apart("mlx5_0") + apart("mlx5_2") + apart("rxe0"),
		"mlx5 iface=eth1":         second + first + down + left("rxe0"),
		"mlx5 iface=eno1":         first + second + down + left("rxe0") + "the interface eno1 has no device in the list of devices, so each device uses an address of its own\n",
		"gid=1":                   local + down + software,
		"=mlx5_0,mlx5_77":         first + left("mlx5_2") + left("mlx5_10") + left("rxe0") + "the list of devices names mlx5_77, which the machine does not have\n",
		"=mlx5_77":                "choose RDMA devices: devices: allows no port of this machine (got the devices mlx5_77, have mlx5_0, mlx5_2, mlx5_10, rxe0): set the names of some, or unset it\n",
		"iface=eno1":              "choose RDMA devices: interface: eno1 has no RDMA device: set one of eth0, eth2, eth1, or auto\n",
		"iface=eth7":              "choose RDMA devices: interface: eth7 is not a network interface of this machine: set one of eth0, eth2, eth1, or auto\n",
		"mlx5_0:1,mlx5_1:1 gid=7": "choose RDMA devices: GID index: no port has a GID that fits at this index: mlx5_0 port 1 is not used: its GID 7 is empty: set one of 1 (RoCE v2, fe80::2), 3 (RoCE v2, 10.0.0.1); mlx5_10 port 1 is not used: its GID 7 is empty: set one of 1 (RoCE v2, fe80::3), 3 (RoCE v2, 10.0.1.1)\n",
		"=mlx5_0 gid=2":           "choose RDMA devices: GID index: no port has a GID that fits at this index: mlx5_0 port 1 is not used: no GID of RoCE v2 fits: GID 2 (10.0.0.1): of another type than RoCE v2: set one of 1 (RoCE v2, fe80::2), 3 (RoCE v2, 10.0.0.1)\n",
	} {
		got := strings.Split(choose(t, inv, request(t, words)), "\n")
		require.ElementsMatch(t, strings.Split(strings.TrimSuffix(want, "\n"), "\n"), got, "%q", words)
		if first, _, _ := strings.Cut(want, "\n"); strings.Contains(first, ", GID ") {
			require.Equal(t, strings.SplitN(want, "\n", 2)[0], got[0], "%q: the first one", words)
		}
	}
}

func TestWhatALogShouldTell(t *testing.T) {
	s, err := twoRails(t).read().Choose(request(t, "iface=eth1"))
	require.NoError(t, err)
	require.Equal(t, []string{"mlx5_10"}, s.Devices())
	require.Empty(t, s.Remarks(), "what nobody asked for is no news")
	s, err = twoRails(t).read().Choose(request(t, ""))
	require.NoError(t, err)
	require.Equal(t, []string{"mlx5_0", "mlx5_10"}, s.Devices())
	require.Equal(t, []string{"mlx5_2 port 1 is not used: it is not active (state DOWN, physical state Disabled): ip link set eth2 up"}, s.Remarks())
}

func TestSourceOfTheLinkHasAZone(t *testing.T) {
	s, err := twoRails(t).read().Choose(request(t, "=mlx5_0 gid=1"))
	require.NoError(t, err)
	require.Equal(t, netip.MustParseAddr("fe80::2%eth0"), s.Choices[0].Source)
	require.Equal(t, netip.MustParseAddr("fe80::2"), s.Choices[0].GID)
}

// IPv4 is better than IPv6, and an address of the link is the last resort.
func TestOrderOfAddresses(t *testing.T) {
	for _, c := range []struct{ addresses, want string }{
		{"fe80::1 2001:db8::1 10.0.0.1", "GID 5 (10.0.0.1 of eth0)"},
		{"fe80::1 2001:db8::1 169.254.0.1", "GID 3 (2001:db8::1 of eth0)"},
		{"fe80::1", "GID 1 (fe80::1 of eth0)\nmlx5_0 port 1 has only a link-local address, which leads to peers on the same network segment: ip addr add ADDRESS/PREFIX dev eth0"},
		{"10.0.0.2 10.0.0.1", "GID 1 (10.0.0.2 of eth0)"},
	} {
		m := newTree(t)
		f := m.Net("eth0", c.addresses)
		var gids []string
		for i, a := range f.Addresses {
			gids = append(gids, roce(2*i, a.String(), "eth0")...)
		}
		m.Device(fake{Name: "mlx5_0", At: nic0, Net: "eth0", Ports: []fakePort{{GIDs: gids}}})
		require.Equal(t, "mlx5_0 port 1, "+c.want, choose(t, m.read(), request(t, "")))
	}
}

// A bond of both ports is one device. The second function has none of its own.
func bonded(t *testing.T) *tree {
	m := newTree(t)
	m.Net("eth0", "").Master = ""
	m.Net("eth1", "")
	for _, name := range []string{"eth0", "eth1"} {
		m.Link("sys/class/net/"+name+"/master", "sys/devices/virtual/net/bond0")
	}
	m.Net("bond0", "10.0.0.1 fe80::9")
	m.Net("bond0.100", "10.0.100.1")
	m.Write("proc/net/vlan/config", "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\nbond0.100      | 100  | bond0")
	gids := append(roce(0, "fe80::9", "bond0"), roce(2, "10.0.100.1", "bond0.100")...)
	m.Device(fake{Name: "mlx5_bond_0", At: nic0, Net: "eth0", Ports: []fakePort{{GIDs: append(gids, roce(4, "10.0.0.1", "bond0")...)}}})
	return m
}

func TestBondAndVLAN(t *testing.T) {
	m := bonded(t)
	m.mapped["bond0"] = "mlx5_bond_0"
	inv := m.read()
	require.Equal(t, []string{"eth0", "bond0", "bond0.100"}, inv.Devices[0].Ports[0].Interfaces)
	vlan, _ := inv.Interface("bond0.100")
	require.Equal(t, 100, vlan.VLAN)
	require.Equal(t, "bond0", vlan.Parent)
	const bond = "mlx5_bond_0 port 1, GID 5 (10.0.0.1 of bond0)"
	for words, want := range map[string]string{
		"":                bond,
		"iface=bond0":     bond,
		"iface=eth0":      bond,
		"iface=eth1":      bond,
		"iface=bond0.100": "mlx5_bond_0 port 1, GID 3 (10.0.100.1 of bond0.100)",
		"gid=5":           bond,
	} {
		require.Equal(t, want, choose(t, inv, request(t, words)), words)
	}
}

func TestVirtualFunction(t *testing.T) {
	m := newTree(t)
	m.Rail("mlx5_0", nic0, "eth0", "10.0.0.1")
	m.Net("eth0v0", "10.0.0.2")
	m.Device(fake{Name: "mlx5_1", At: vf0, Net: "eth0v0", PhysFn: nic0, Ports: []fakePort{{GIDs: roce(0, "10.0.0.2", "eth0v0")}}})
	inv := m.read()
	require.True(t, inv.Devices[1].Virtual)
	require.False(t, inv.Devices[0].Virtual)
	require.Equal(t, "0000:17:00.2", inv.Devices[1].PCI)
	require.Contains(t, choose(t, inv, request(t, "iface=eth0v0")), "mlx5_1 port 1, GID 1 (10.0.0.2 of eth0v0)")
}

// The second address of the machine belongs to a partition (P_Key 0x8001) on the same port.
func infiniband(t *testing.T) *tree {
	m := newTree(t)
	hardware := append([]byte{0, 0, 1, 7}, netip.MustParseAddr("fe80::b83f:d203:11:2233").AsSlice()...)
	m.Net("ib0", "10.1.0.1 fe80::b83f:d203:11:2233").Hardware = hardware
	m.Net("ib0.8001", "10.1.1.1").Hardware = hardware
	m.Net("ib1", "").Hardware = append([]byte{0, 0, 1, 8}, netip.MustParseAddr("fe80::b83f:d203:11:2234").AsSlice()...)
	m.Device(fake{Name: "mlx5_0", At: nic0, Ports: []fakePort{
		{Link: "InfiniBand", GIDs: []string{"0 fe80:0000:0000:0000:b83f:d203:0011:2233 IB/RoCE v1 -"}},
		{Link: "InfiniBand", GIDs: []string{"0 fe80:0000:0000:0000:b83f:d203:0011:2234 IB/RoCE v1 -"}},
	}})
	m.Device(fake{Name: "mlx5_1", At: nic1, Ports: []fakePort{{Link: "InfiniBand", GIDs: []string{"0 fe80:0000:0000:0000:0000:0000:0000:0009 IB/RoCE v1 -"}}}})
	m.Device(fake{Name: "mlx5_2", At: vf0, Ports: []fakePort{{Link: "InfiniBand", State: "2: INIT"}}})
	return m
}

func TestInfiniBand(t *testing.T) {
	inv := infiniband(t).read()
	require.Equal(t, `mlx5_0 port 1, GID 0 (10.1.0.1 of ib0)
mlx5_0 port 2 is not used: its network interface has no address here: ip addr add ADDRESS/PREFIX dev ib1
mlx5_1 port 1 is not used: it has no network interface of IPoIB, by whose address peers find it: modprobe ib_ipoib, and give the interface an address
mlx5_2 port 1 is not used: it is not active (state INIT, physical state LinkUp): start a subnet manager (opensm)`, choose(t, inv, request(t, "")))
	require.Contains(t, choose(t, inv, request(t, "iface=ib0.8001")), "mlx5_0 port 1, GID 0 (10.1.1.1 of ib0.8001)")
	require.Contains(t, choose(t, inv, request(t, "mlx5_0:1 gid=0")), "mlx5_0 port 1, GID 0")
	require.Contains(t, choose(t, inv, request(t, "mlx5_0:1 gid=3")), "its GID 3 is empty: set one of 0 (InfiniBand, fe80::b83f:d203:11:2233)")
	require.Equal(t, GIDOfIB, inv.Devices[0].Ports[0].GIDs[0].Type)
}

func TestSoftware(t *testing.T) {
	m := newTree(t)
	m.Net("h0", "10.77.0.1 fe80::ff:fe77:1")
	m.Device(fake{Name: "rxe0", Parent: "h0", Ports: []fakePort{{GIDs: []string{
		"0 fe80:0000:0000:0000:0000:00ff:fe77:0001 RoCE v2 h0", "1 0000:0000:0000:0000:0000:ffff:0a4d:0001 RoCE v2 h0"}}}})
	inv := m.read()
	require.Equal(t, "rxe0 port 1, GID 1 (10.77.0.1 of h0)", choose(t, inv, request(t, "")))
	require.Equal(t, "rdma_rxe", inv.Devices[0].Driver)
	require.Equal(t, 4096, inv.Devices[0].Ports[0].MTU)

	m = newTree(t)
	m.Net("h0", "fe80::1 10.77.0.1").Hardware = []byte{2, 0, 0, 0x77, 0, 1}
	m.Device(fake{Name: "siw0", Node: "4: RNIC", Ports: []fakePort{{GIDs: []string{"0 0200:0077:0001:0000:0000:0000:0000:0000 IB/RoCE v1 -"}}}})
	inv = m.read()
	require.Equal(t, "siw0 port 1, GID 0 (10.77.0.1 of h0)", choose(t, inv, request(t, "iface=h0")))
	require.Equal(t, "siw", inv.Devices[0].Driver)
	require.True(t, inv.Devices[0].Software)
	require.Equal(t, IWARP, inv.Devices[0].Transport)

	// soft-RoCE of older kernels shows the function of the card below it.
	m = newTree(t)
	m.Net("eth0", "10.0.0.1")
	m.Device(fake{Name: "rxe0", At: nic0, Parent: "eth0", Ports: []fakePort{{GIDs: roce(0, "10.0.0.1", "eth0")}}})
	inv = m.read()
	require.True(t, inv.Devices[0].Software)
	require.Empty(t, inv.Devices[0].PCI)
}

// A container sees the GID table of the host, whose names may be those of its own interfaces.
func TestOtherNetworkNamespace(t *testing.T) {
	m := newTree(t)
	m.Rail("mlx5_0", nic0, "eth0", "10.0.0.1")
	m.Interfaces[0].Addresses = []netip.Addr{netip.MustParseAddr("172.17.0.2")}
	require.Equal(t, "mlx5_0 port 1 is not used: no GID of RoCE v2 fits: GID 3 (10.0.0.1): no address of this network namespace (and 1 more): give its network interface an address, which makes an entry", choose(t, m.read(), request(t, "")))
	m.Interfaces = nil
	s, err := m.read().Choose(request(t, ""))
	require.NoError(t, err)
	require.Contains(t, s.Why(m.read()), ": no address of this network namespace")
}

func TestPortsThatNobodyCanUse(t *testing.T) {
	for name, c := range map[string]struct {
		device fake
		want   string
	}{
		"no GID":          {fake{Ports: []fakePort{{}}}, "its GID table is empty: give its network interface an address"},
		"no type":         {fake{Ports: []fakePort{{GIDs: []string{"1 0000:0000:0000:0000:0000:ffff:0a00:0001 - eth0"}}}}, "GID 1 (10.0.0.1): of another type than RoCE v2"},
		"EFA":             {fake{Node: "7: <unknown>", Ports: []fakePort{{}}}, `it has no reliable connections (node type "<unknown>")`},
		"no uverbs":       {fake{NoUverbs: true, Ports: []fakePort{{GIDs: roce(0, "10.0.0.1", "eth0")}}}, "programs cannot open the device: modprobe ib_uverbs"},
		"no cable":        {fake{Ports: []fakePort{{State: "1: DOWN", Physical: "2: Polling"}}}, "it is not active (state DOWN, physical state Polling): check the cable"},
		"no state":        {fake{Ports: []fakePort{{State: "?", Physical: "x"}}}, "it is not active (state unknown, physical state unknown)"},
		"interface down":  {fake{Ports: []fakePort{{GIDs: roce(0, "10.0.9.1", "eth9")}}}, "of an interface that is down (ip link set eth9 up)"},
		"iWARP alone":     {fake{Node: "4: RNIC", Ports: []fakePort{{GIDs: []string{"0 0200:0077:0001:0000:0000:0000:0000:0000 IB/RoCE v1 -"}}}}, "no network interface of this network namespace belongs to it"},
		"iWARP empty":     {fake{Node: "4: RNIC", Ports: []fakePort{{}}}, "its GID table is empty"},
		"IPoIB down":      {fake{Ports: []fakePort{{Link: "InfiniBand", GIDs: []string{"0 fe80:0000:0000:0000:0000:0000:0000:0001 IB/RoCE v1 -"}}}}, "its network interface is down: ip link set ib9 up"},
		"not one address": {fake{Ports: []fakePort{{GIDs: roce(0, "10.0.0.77", "-")}}}, ": no address of this network namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTree(t)
			m.Net("eth0", "10.0.0.1")
			m.Net("eth9", "down 10.0.9.1")
			m.Net("ib9", "down 10.0.8.1").Hardware = append(make([]byte, 4), netip.MustParseAddr("fe80::1").AsSlice()...)
			c.device.Name, c.device.At = "dev0", nic0
			m.Device(c.device)
			inv := m.read()
			got := choose(t, inv, request(t, ""))
			require.Contains(t, got, c.want)
			s, err := inv.Choose(request(t, ""))
			require.NoError(t, err)
			require.Equal(t, got, s.Why(inv))
		})
	}
}

// The kernel keeps the entry of an address that a member of a bond still has. Nothing is sent from there.
func TestMemberOfABond(t *testing.T) {
	m := newTree(t)
	m.Net("eth0", "10.0.0.1").Hardware = []byte{2, 0, 0, 0x77, 0, 1}
	m.Net("bond0", "10.0.0.2").Hardware = []byte{2, 0, 0, 0x77, 0, 1}
	m.Link("sys/class/net/eth0/master", "sys/devices/virtual/net/bond0")
	m.Device(fake{Name: "dev0", At: nic0, Net: "eth0", Ports: []fakePort{{GIDs: append(roce(0, "10.0.0.1", "eth0"), roce(2, "10.0.0.2", "bond0")...)}}})
	m.Device(fake{Name: "siw0", Node: "4: RNIC", Ports: []fakePort{{GIDs: []string{"0 0200:0077:0001:0000:0000:0000:0000:0000 IB/RoCE v1 -"}}}})
	inv := m.read()
	require.Equal(t, "dev0 port 1, GID 3 (10.0.0.2 of bond0)\nsiw0 port 1, GID 0 (10.0.0.2 of bond0)", choose(t, inv, request(t, "=dev0,siw0")))
	require.Equal(t, "02:00:00:77:00:01", inv.Devices[1].Ports[0].GIDs[0].String())
}

// An entry may name no interface. Then the address tells it.
func TestEntryWithoutInterface(t *testing.T) {
	m := newTree(t)
	m.Net("eth0", "10.0.0.1")
	m.Device(fake{Name: "dev0", At: nic0, Ports: []fakePort{{GIDs: roce(0, "10.0.0.1", "-")}}})
	require.Equal(t, "dev0 port 1, GID 1 (10.0.0.1 of eth0)", choose(t, m.read(), request(t, "")))
}

// rdmamap knows the device of an interface that no file shows.
func TestRdmamapIsAsked(t *testing.T) {
	m := newTree(t)
	m.Net("ib7", "10.0.0.1")
	m.Device(fake{Name: "mlx4_0", At: nic0, Ports: []fakePort{{Link: "InfiniBand"}}})
	require.Contains(t, choose(t, m.read(), request(t, "iface=ib7")), "ib7 has no RDMA device: no interface of this machine has")
	m.mapped["ib7"] = "mlx4_0"
	require.Len(t, m.read().PortsOf("ib7"), 1)
}

func TestHardwareComesBeforeSoftware(t *testing.T) {
	m := twoRails(t)
	m.mapped["eth0"] = "rxe0"
	found := m.read().PortsOf("eth0")
	require.Len(t, found, 2)
	require.Equal(t, "mlx5_0", found[0].Device.Name)
	require.Equal(t, "rxe0", found[1].Device.Name)
	require.Empty(t, m.read().PortsOf("eno1"))
	require.Empty(t, m.read().PortsOf("nothing"))
}

func TestNoDevice(t *testing.T) {
	m := newTree(t)
	m.Net("eth0", "10.0.0.1")
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"sys/class/net/eth0/mtu", "1500", "the kernel has no RDMA loaded (there is no /sys/class/infiniband)"},
		{"sys/bus/pci/devices/0000:17:00.0/vendor", "0x15b3", "the kernel has no RDMA loaded (there is no /sys/class/infiniband)"},
		{"sys/bus/pci/devices/0000:17:00.0/class", "0x020000", "network cards with RDMA show no device (0000:17:00.0): load the driver on the host (modprobe mlx5_ib)"},
		{"sys/module/ib_core/parameters/netns_mode", "N", "none is in this network namespace, and the machine has network cards with RDMA (0000:17:00.0): move one here with rdma dev set NAME netns NAMESPACE"},
		{"sys/bus/pci/devices/0000:17:00.0/class", "0x030000", "the kernel has no RDMA loaded (there is no /sys/class/infiniband)"},
		{"sys/class/infiniband/.keep/x", "", ""},
	} {
		m.Write(c.name, c.text)
		if c.want == "" {
			continue
		}
		inv := m.read()
		require.Equal(t, c.want, inv.WhyNone())
		s, err := inv.Choose(request(t, "=mlx5_0 iface=eth0 gid=3"))
		require.NoError(t, err, "without a device no setting is wrong")
		require.Equal(t, c.want, s.Why(inv))
	}
	delete(m.Files, "sys/class/infiniband/.keep/x")
	m.Files["sys/class/infiniband"] = nil
	delete(m.Files, "sys/class/infiniband")
	require.Equal(t, "sysfs is not mounted at /sys: mount it, read-only will do", (&Inventory{machine: Machine{Root: newEmpty()}}).WhyNone())
}

func TestInterfacesThatCannotBeListed(t *testing.T) {
	m := twoRails(t).machine()
	m.Interfaces = func() ([]Interface, error) { return nil, errors.New("no netlink") }
	_, err := m.Read()
	require.ErrorContains(t, err, "no netlink")
}
