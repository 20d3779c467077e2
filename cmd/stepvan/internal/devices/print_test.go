package devices

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/rdma/device/devicetest"
)

func report(t *testing.T, m *devicetest.Tree, edit func(*config.Settings), l *rdma.Library) *Report {
	t.Helper()
	inv, err := device.Machine{Root: m.Files, Interfaces: func() (all []device.Interface, err error) {
		for _, f := range m.Interfaces {
			all = append(all, device.Interface(f))
		}
		return all, nil
	}}.Read()
	require.NoError(t, err)
	s := config.Default()
	if edit != nil {
		edit(&s)
	}
	return New(&s, inv, l, nil)
}

func printed(t *testing.T, r *Report, gids bool) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Print(&b, r, Parts{GIDs: gids}))
	return b.String()
}

// A host with one healthy card, a card of InfiniBand without IPoIB, a virtual function, EFA, and soft-RoCE.
func host() *devicetest.Tree {
	m := devicetest.New()
	m.Rail("mlx5_0", devicetest.Card0, "eth0", "10.0.0.1")
	m.Device(devicetest.Device{Name: "mlx5_1", At: devicetest.Card1, NUMA: "1", Ports: []devicetest.Port{
		{Link: "InfiniBand", GIDs: []string{"0 fe80:0000:0000:0000:0000:0000:0000:0009 IB/RoCE v1 -"}}}})
	m.Device(devicetest.Device{Name: "mlx5_2", At: devicetest.Virtual0, PhysFn: devicetest.Card0, Ports: []devicetest.Port{
		{State: "1: DOWN", Physical: "2: Polling", Rate: "0 Gb/sec"}}})
	m.Device(devicetest.Device{Name: "efa_0", At: "pci0000:15/0000:15:03.0", Driver: "efa", Node: "7: <unknown>", Ports: []devicetest.Port{{}}})
	m.Device(devicetest.Device{Name: "rxe0", Parent: "eth0", Ports: []devicetest.Port{{GIDs: devicetest.RoCE(0, "10.0.0.1", "eth0")}}})
	m.Device(devicetest.Device{Name: "odd0", At: "pci0000:15/0000:15:04.0"})
	m.Accelerator("pci0000:15/0000:15:01.0/0000:16:01.0/0000:18:00.0", "0")
	return m
}

func TestTable(t *testing.T) {
	r := report(t, host(), nil, &rdma.Library{Providers: []string{"efa_0", "mlx5_0", "mlx5_1", "odd0", "rxe0"}})
	require.Equal(t, `DEVICE  PORT  STATE           LINK        RATE         MTU   PCI                NUMA  DRIVER     INTERFACES  USE
efa_0   1     active          other       400G 4X NDR  -     0000:15:03.0       0     efa        -           no
mlx5_0  1     active          RoCE        400G 4X NDR  4096  0000:17:00.0       0     mlx5_core  eth0        GID 3, 10.0.0.1
mlx5_1  1     active          InfiniBand  400G 4X NDR  -     0000:3a:00.0       1     mlx5_core  -           no
mlx5_2  1     down (Polling)  RoCE        -            -     0000:17:00.2 (VF)  0     mlx5_core  -           no
odd0    -     -               -           -            -     0000:15:04.0       0     mlx5_core  -           no
rxe0    1     active          RoCE        400G 4X NDR  4096  software           -     rdma_rxe   eth0        no

ACCELERATOR   VENDOR  NUMA  NEAREST DEVICE
0000:18:00.0  NVIDIA  0     mlx5_0 (same PCIe switch)

efa_0 port 1 is not used: it has no reliable connections (node type "<unknown>"): use a device of InfiniBand, RoCE or iWARP
mlx5_1 port 1 is not used: it has no network interface of IPoIB, by whose address peers find it: modprobe ib_ipoib, and give the interface an address
mlx5_2 port 1 is not used: it is not active (state DOWN, physical state Polling): check the cable, and the port of the switch
rxe0 port 1 is not used: it is software, and the machine has hardware
mlx5_2: libibverbs does not list it, since its device file or its provider is missing: stepvan doctor says which
odd0: ports: the kernel shows none
`, printed(t, r, false))
}

func TestTablesOfGIDs(t *testing.T) {
	out := printed(t, report(t, host(), nil, &rdma.Library{}), true)
	require.Contains(t, out, "mlx5_0  1     3    10.0.0.1  RoCE v2     eth0\n")
	require.Contains(t, out, "mlx5_1  1     0    fe80::9   InfiniBand  -\n")
}

func TestTableOfCounters(t *testing.T) {
	r := report(t, host(), nil, &rdma.Library{})
	r.Counters = []device.PortCounters{
		{Device: "mlx5_0", Port: 1, List: []device.Counter{{Name: "out_of_sequence", Value: 3}, {Name: "rx_write_requests", Value: 9}}},
		{Device: "mlx5_1", Port: 1},
	}
	var b strings.Builder
	require.NoError(t, Print(&b, r, Parts{Counters: true}))
	require.Contains(t, b.String(), `
DEVICE  PORT  COUNTER                           VALUE
mlx5_0  1     out_of_sequence                   3
mlx5_1  1     no retries, losses or congestion  -
`)
	require.NotContains(t, printed(t, r, false), "out_of_sequence")
}

func TestWithoutDevices(t *testing.T) {
	r := report(t, devicetest.New(), nil, &rdma.Library{Err: errors.New("load: libibverbs.so.1: not found")})
	require.Equal(t, "No RDMA device: the kernel has no RDMA loaded (there is no /sys/class/infiniband).\n", printed(t, r, true))
	require.Equal(t, "load: libibverbs.so.1: not found", r.Library)
}

func TestLibraryThatIsMissing(t *testing.T) {
	out := printed(t, report(t, host(), nil, &rdma.Library{Err: errors.New("load: libibverbs.so.1: not found")}), false)
	require.Contains(t, out, "the devices cannot be used: load: libibverbs.so.1: not found\n")
	require.NotContains(t, out, "does not list it")
}

func TestMistakeOfSettings(t *testing.T) {
	r := report(t, host(), func(s *config.Settings) { s.RDMADevices = "=mlx5_9" }, &rdma.Library{})
	require.Contains(t, r.Mistake, `STEPVAN_RDMA_DEVICES="=mlx5_9": allows no port of this machine`)
	require.Contains(t, printed(t, r, false), "eth0        no\n")
}

// Tools may rely on lists being there.
func TestJSON(t *testing.T) {
	for _, m := range []*devicetest.Tree{devicetest.New(), host()} {
		for _, list := range []string{"", "=mlx5_9"} {
			var b strings.Builder
			require.NoError(t, JSON(&b, report(t, m, func(s *config.Settings) { s.RDMADevices = list }, &rdma.Library{})))
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
			require.NotContains(t, b.String(), "null")
			require.Contains(t, got["selection"], "choices")
		}
	}
}
