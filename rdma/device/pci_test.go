package device

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathsOfPCI(t *testing.T) {
	for link, want := range map[string][]string{
		"../../devices/pci0000:15/0000:15:01.0/0000:17:00.0/infiniband/mlx5_0":                {"pci0000:15", "0000:15:01.0", "0000:17:00.0"},
		"../../devices/pci0000:15/0000:15:01.0/0000:17:00.0/mlx5_core.sf.4/infiniband/mlx5_2": {"pci0000:15", "0000:15:01.0", "0000:17:00.0"},
		"../../../devices/pci10000:e0/10000:e0:01.0":                                          {"pci10000:e0", "10000:e0:01.0"},
		"../../devices/virtual/infiniband/rxe0":                                               nil,
		"../../devices/0000:17:00.0":                                                          nil,
		"":                                                                                    nil,
	} {
		require.Equal(t, want, pciPath(link), link)
	}
}

// Two sockets: the first accelerator shares a switch with the first card, the second a host bridge, the third a socket.
func TestNearestDevice(t *testing.T) {
	m := twoRails(t)
	m.Files["sys/devices/"+nic1+"/numa_node"].Data = []byte("1\n")
	m.Accelerator("pci0000:15/0000:15:01.0/0000:16:01.0/0000:18:00.0", "0")
	m.Accelerator("pci0000:37/0000:37:09.0/0000:4a:00.0", "1")
	m.Accelerator("pci0000:89/0000:89:01.0/0000:8a:00.0", "1")
	m.PCI("pci0000:89/0000:89:02.0", "ast", "1")
	m.Write("sys/devices/pci0000:89/0000:89:02.0/class", "0x030000")
	m.Write("sys/devices/pci0000:89/0000:89:02.0/vendor", "0x1a03")
	inv := m.read()
	all := inv.Accelerators()
	require.Len(t, all, 3)
	for i, want := range []struct {
		device string
		near   Proximity
	}{{"mlx5_0", SameSwitch}, {"mlx5_2", SameBridge}, {"mlx5_10", SameNode}} {
		d, at := inv.Nearest(all[i])
		require.Equal(t, want.device, d.Name)
		require.Equal(t, want.near, at.Proximity, "%v", at.Proximity)
	}
	require.Equal(t, "NVIDIA", all[0].Vendor)
	require.Equal(t, OtherNode, all[2].Distance(&inv.Devices[0]).Proximity)
	require.Equal(t, NotKnown, all[2].Distance(&Device{NUMA: -1, path: []string{"pci0000:01"}}).Proximity)
	require.Equal(t, Distance{}, Accelerator{}.Distance(&inv.Devices[0]))

	r := request(t, "")
	r.Accelerator = &all[2]
	s, err := inv.Choose(r)
	require.NoError(t, err)
	require.Equal(t, "mlx5_10", s.Choices[0].Device, "the nearest comes first")
	require.Equal(t, SameNode, s.Choices[0].Nearness)
	require.Equal(t, "mlx5_0", s.Choices[1].Device)
}

// Of two cards behind one switch, the one with fewer bridges between is nearer.
func TestHops(t *testing.T) {
	a := Accelerator{path: []string{"pci0000:15", "a", "b", "gpu"}}
	near, far := &Device{path: []string{"pci0000:15", "a", "b", "nic"}}, &Device{path: []string{"pci0000:15", "a", "c", "nic"}}
	require.Negative(t, a.Distance(near).compare(a.Distance(far)))
	require.Positive(t, a.Distance(far).compare(a.Distance(near)))
}

// configuration makes the configuration of a function with this device control in its capability of PCI Express.
func configuration(control uint16) []byte {
	b := make([]byte, 256)
	b[0x06], b[0x34] = 0x10, 0x40
	b[0x40], b[0x41] = 0x01, 0x60 // power management, then PCI Express
	b[0x60] = 0x10
	binary.LittleEndian.PutUint16(b[0x68:], control)
	return b
}

func TestRelaxedOrdering(t *testing.T) {
	m := twoRails(t)
	inv := m.read()
	_, known := inv.RelaxedOrdering("0000:17:00.0")
	require.False(t, known)
	for _, c := range []struct {
		bytes     []byte
		on, known bool
	}{
		{configuration(0x2810), true, true},
		{configuration(0x2800), false, true},
		{configuration(0x2810)[:64], false, false}, // what a user may read
		{make([]byte, 256), false, false},
		{nil, false, false},
	} {
		m.Write("sys/devices/"+nic0+"/config", "")
		m.Files["sys/devices/"+nic0+"/config"].Data = c.bytes
		on, known := inv.RelaxedOrdering("0000:17:00.0")
		require.Equal(t, c.known, known)
		require.Equal(t, c.on, on)
	}
	circle := configuration(0x2810)
	circle[0x41] = 0x40
	_, known = parseRelaxedOrdering(circle)
	require.False(t, known)
}
