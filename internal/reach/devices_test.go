package reach

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/rdma/device/devicetest"
)

// twoCards has two cards, and an accelerator beside each.
func twoCards(t *testing.T) *device.Inventory {
	m := devicetest.New()
	m.Rail("mlx5_0", devicetest.Card0, "eth0", "10.0.0.1")
	m.Rail("mlx5_1", devicetest.Card1, "eth1", "10.0.1.1")
	m.Net("eno1", "192.168.0.1")
	m.Accelerator("pci0000:15/0000:15:02.0", "0")
	m.Accelerator("pci0000:37/0000:37:02.0", "1")
	inv, err := device.Machine{Root: m.Files, Interfaces: func() (all []device.Interface, err error) {
		for _, f := range m.Interfaces {
			all = append(all, device.Interface(f))
		}
		return all, nil
	}}.Read()
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

func TestDevicesHere(t *testing.T) {
	s := config.Default()
	selection, inv, err := DevicesHere(&s, nil)
	require.NoError(t, err)
	require.Equal(t, len(selection.Choices) == 0, selection.Why(inv) != "")
	s.RDMADevices = "^"
	_, _, err = DevicesHere(&s, nil)
	require.ErrorContains(t, err, "STEPVAN_RDMA_DEVICES")
}

func TestDevicesThatTheMachineLacks(t *testing.T) {
	inv := twoCards(t)
	for _, c := range []struct {
		edit             func(*config.Settings)
		key, value, text string
	}{
		{func(s *config.Settings) { s.RDMADevices = "=mlx5_7" }, "STEPVAN_RDMA_DEVICES", "=mlx5_7", "have mlx5_0, mlx5_1"},
		{func(s *config.Settings) { s.RDMADevices = "mlx5_0:" }, "STEPVAN_RDMA_DEVICES", "mlx5_0:", "must be a number"},
		{func(s *config.Settings) { s.RDMAGIDIndex = 4 }, "STEPVAN_RDMA_GID_INDEX", "4", "set one of 1 (RoCE v2, fe80::1), 3 (RoCE v2, 10.0.0.1)"},
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
