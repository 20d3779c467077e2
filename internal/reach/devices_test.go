package reach

import (
	"fmt"
	"io/fs"
	"net/netip"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/rdma/device"
)

// twoCards has a card and an accelerator on each of two host bridges.
func twoCards(t *testing.T) *device.Inventory {
	files := fstest.MapFS{}
	write := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text)} }
	link := func(name, to string) {
		files[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../../" + to)}
	}
	var interfaces []device.Interface
	for i := range 2 {
		bridge := fmt.Sprintf("devices/pci0000:%d0", i+1)
		card := fmt.Sprintf("%s/0000:%d1:00.0", bridge, i+1)
		name, iface, address := fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("eth%d", i), fmt.Sprintf("10.0.%d.1", i)
		dir := "sys/" + card + "/infiniband/" + name
		files["sys/class/infiniband/"+name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../" + card + "/infiniband/" + name)}
		write(dir+"/node_type", "1: CA")
		write(dir+"/ports/1/state", "4: ACTIVE")
		write(dir+"/ports/1/phys_state", "5: LinkUp")
		write(dir+"/ports/1/link_layer", "Ethernet")
		write(dir+"/ports/1/rate", "400 Gb/sec (4X NDR)")
		write(dir+"/ports/1/gids/3", "::ffff:"+address)
		write(dir+"/ports/1/gid_attrs/types/3", "RoCE v2")
		write(dir+"/ports/1/gid_attrs/ndevs/3", iface)
		write("sys/class/infiniband_verbs/uverbs"+fmt.Sprint(i)+"/ibdev", name)
		gpu := fmt.Sprintf("0000:%d2:00.0", i+1)
		link("sys/bus/pci/devices/"+gpu, bridge+"/"+gpu)
		write("sys/"+bridge+"/"+gpu+"/class", "0x030200")
		write("sys/"+bridge+"/"+gpu+"/vendor", "0x10de")
		interfaces = append(interfaces, device.Interface{Name: iface, Up: true, MTU: 9000, Addresses: []netip.Addr{netip.MustParseAddr(address)}})
	}
	interfaces = append(interfaces, device.Interface{Name: "eno1", Up: true})
	inv, err := device.Machine{Root: files, Interfaces: func() ([]device.Interface, error) { return interfaces, nil }}.Read()
	require.NoError(t, err)
	return inv
}

func TestDevicesOfSettings(t *testing.T) {
	inv := twoCards(t)
	for name, c := range map[string]struct {
		edit  func(*config.Settings)
		first string
		total int
	}{
		"nothing set":       {func(*config.Settings) {}, "mlx5_0", 2},
		"a list":            {func(s *config.Settings) { s.RDMADevices = "=mlx5_1" }, "mlx5_1", 1},
		"an index":          {func(s *config.Settings) { s.RDMAGIDIndex = 3 }, "mlx5_0", 2},
		"an interface":      {func(s *config.Settings) { s.Interface = "eth1" }, "mlx5_1", 1},
		"any interface":     {func(s *config.Settings) { s.Interface = "auto" }, "mlx5_0", 2},
		"list, interface":   {func(s *config.Settings) { s.RDMADevices, s.Interface = "mlx5", "eth1" }, "mlx5_1", 2},
		"an accelerator":    {func(s *config.Settings) { s.Backend, s.GPU = config.BackendGPU, 1 }, "mlx5_1", 2},
		"none of that name": {func(s *config.Settings) { s.Backend, s.GPU = config.BackendDCU, 1 }, "mlx5_0", 2},
		"none so high":      {func(s *config.Settings) { s.Backend, s.GPU = config.BackendGPU, 2 }, "mlx5_0", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := config.Default()
			c.edit(&s)
			got, err := Devices(&s, inv, nil)
			require.NoError(t, err)
			require.Len(t, got.Choices, c.total)
			require.Equal(t, c.first, got.Choices[0].Device)
			require.Contains(t, DevicesInUse(got), c.first+" port 1, GID 3 (10.0.")
			require.Equal(t, c.total > 1, DevicesInUse(got) != got.Choices[0].String())
		})
	}
}

func TestDevicesThatTheMachineLacks(t *testing.T) {
	inv := twoCards(t)
	for _, c := range []struct {
		edit             func(*config.Settings)
		key, value, text string
	}{
		{func(s *config.Settings) { s.RDMADevices = "=mlx5_7" }, "STEPVAN_RDMA_DEVICES", "=mlx5_7", "have mlx5_0, mlx5_1"},
		{func(s *config.Settings) { s.RDMADevices = "mlx5_0:" }, "STEPVAN_RDMA_DEVICES", "mlx5_0:", "must be a number"},
		{func(s *config.Settings) { s.RDMAGIDIndex = 4 }, "STEPVAN_RDMA_GID_INDEX", "4", "set one of 3 (RoCE v2, 10.0.0.1)"},
		{func(s *config.Settings) { s.Interface = "eno1" }, "DMLC_INTERFACE", "eno1", "has no RDMA device: set one of eth0, eth1, or auto"},
	} {
		s := config.Default()
		c.edit(&s)
		_, err := Devices(&s, inv, nil)
		var wrong *stepvan.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, c.key, wrong.Key)
		require.Equal(t, c.value, wrong.Value)
		require.Contains(t, wrong.Reason, c.text)
	}
}
