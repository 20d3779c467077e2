package doctor

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/internal/verbs"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/rdma/device/devicetest"
)

// withDevice is a healthy machine that has a healthy device.
func withDevice() *machine {
	m := healthy()
	m.devices.Net("eno1", "192.168.0.2")
	m.devices.Rail("mlx5_0", devicetest.Card0, "eth0", "10.0.0.2")
	m.library = rdma.Library{Providers: []string{"mlx5_0"}, ForkSafe: true}
	m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{unlimited, unlimited}
	return m
}

func TestHealthyDevice(t *testing.T) {
	m := withDevice()
	var got []Check
	for _, c := range Run(t.Context(), worker(t, ""), Options{System: &m.System}) {
		require.Equal(t, OK, c.Status, c)
		if len(c.Name) >= 4 && c.Name[:4] == "RDMA" {
			got = append(got, c)
		}
	}
	require.Equal(t, []Check{
		{"RDMA", OK, "mlx5_0 port 1, GID 3 (10.0.0.2 of eth0)", ""},
		{"RDMA files", OK, "rdma_cm and uverbs can be opened below /dev/infiniband", ""},
		{"RDMA library", OK, "libibverbs and librdmacm work; the kernel copies registered memory for a fork", ""},
		{"RDMA memory", OK, "may pin any amount", ""},
	}, got)
}

func TestNobodyLooksForDevicesWithoutRDMA(t *testing.T) {
	for words, want := range map[string]string{
		"STEPVAN_VAN=tcp": "not used (STEPVAN_VAN=tcp)",
		"STEPVAN_VAN=shm": "not used (STEPVAN_VAN=shm)",
		"DMLC_LOCAL=1":    "not used (DMLC_LOCAL=1)",
	} {
		m := withDevice()
		m.Inventory = nil
		require.Equal(t, Check{"RDMA", OK, want, ""}, worstNamed(Run(t.Context(), worker(t, words), Options{System: &m.System}), "RDMA"))
	}
	m := withDevice()
	m.Inventory = nil
	require.Equal(t, Status(-1), worstNamed(Run(t.Context(), worker(t, "DMLC_ROLE=scheduler DMLC_PS_ROOT_URI=10.0.0.2"), Options{System: &m.System}), "RDMA").Status)
}

func TestFindingsOfDevices(t *testing.T) {
	const demanded = "STEPVAN_VAN=rdma "
	config := "sys/devices/" + devicetest.Card0 + "/config"
	port := "sys/devices/" + devicetest.Card0 + "/infiniband/mlx5_0/ports/1/"
	down := func(m *machine) {
		m.devices.Write(port+"state", "1: DOWN")
		m.devices.Write(port+"phys_state", "3: Disabled")
	}
	bare := func(m *machine) { m.devices = devicetest.New() }
	second := func(m *machine) {
		m.devices.Device(devicetest.Device{Name: "mlx5_1", At: devicetest.Card1, Ports: []devicetest.Port{{State: "1: DOWN", Physical: "2: Polling"}}})
	}
	for _, c := range []struct {
		title, env string
		damage     func(*machine)
		want       Check // Found and Fix: a part of them
	}{
		{"none", "", bare, Check{"RDMA", OK, "no device: the kernel has no RDMA loaded", ""}},
		{"none, demanded", demanded, bare, Check{"RDMA", Fail, "STEPVAN_VAN=rdma demands it, and there is no device: the kernel has no RDMA loaded", "set STEPVAN_VAN=auto"}},
		{"none, demanded between machines", "DMLC_ENABLE_RDMA=ibverbs", bare, Check{"RDMA", Warn, "STEPVAN_VAN=shm+rdma demands it", "set STEPVAN_VAN=auto"}},
		{"none in this namespace", "", func(m *machine) {
			bare(m)
			m.devices.Write("sys/module/ib_core/parameters/netns_mode", "N")
			m.devices.Write("sys/class/infiniband_verbs/version", "1")
			m.devices.Write("sys/bus/pci/devices/0000:17:00.0/vendor", "0x15b3")
			m.devices.Write("sys/bus/pci/devices/0000:17:00.0/class", "0x020000")
		}, Check{"RDMA", OK, "none is in this network namespace, and the machine has network cards with RDMA (0000:17:00.0): move one here with rdma dev set", ""}},
		{"not readable", "", func(m *machine) {
			m.Inventory = func(*rdma.Library) (*device.Inventory, error) { return nil, fs.ErrPermission }
		},
			Check{"RDMA", Warn, "permission denied", "let this process read /sys"}},
		{"port down", "", down, Check{"RDMA", Warn, "mlx5_0 port 1 is not used: it is not active (state DOWN, physical state Disabled)", "ip link set eth0 up"}},
		{"port down, demanded", demanded, down, Check{"RDMA", Fail, "mlx5_0 port 1 is not used: it is not active", "ip link set eth0 up"}},
		{"no GID", "", func(m *machine) { m.devices.Interfaces[1].Addresses = nil }, Check{"RDMA", Warn, "no GID of RoCE v2 fits", "give its network interface an address"}},
		{"another port down", "", second, Check{"RDMA", OK, "mlx5_0 port 1, GID 3 (10.0.0.2 of eth0)", ""}},
		{"another port down that the list names", "STEPVAN_RDMA_DEVICES=mlx5", second, Check{"RDMA", Warn, "mlx5_1 port 1 is not used", "check the cable"}},
		{"list of others", "STEPVAN_RDMA_DEVICES=mlx5_7", nil, Check{"RDMA", Warn, "STEPVAN_RDMA_DEVICES=mlx5_7, and RDMA cannot be used so", "allows no port of this machine"}},
		{"list of others, demanded", demanded + "STEPVAN_RDMA_DEVICES=mlx5_7", nil, Check{"RDMA", Fail, "STEPVAN_RDMA_DEVICES=mlx5_7", "have mlx5_0"}},
		{"list of one and another", "STEPVAN_RDMA_DEVICES==mlx5_0,mlx5_7", nil, Check{"RDMA", Warn, "names mlx5_7, which the machine does not have", "stepvan devices"}},
		{"interface without a device", "DMLC_INTERFACE=eno1", nil, Check{"RDMA", Warn, "DMLC_INTERFACE=eno1", "eno1 has no RDMA device: set one of eth0, or auto"}},
		{"index of nothing", "STEPVAN_RDMA_GID_INDEX=9", nil, Check{"RDMA", Warn, "STEPVAN_RDMA_GID_INDEX=9", "set one of 1 (RoCE v2, fe80::2), 3 (RoCE v2, 10.0.0.2)"}},
		{"index of the link", "STEPVAN_RDMA_GID_INDEX=1", nil, Check{"RDMA", OK, "GID 1 (fe80::2 of eth0)", ""}},
		{"broken file", "", func(m *machine) { m.devices.Write(port+"rate", "fast") }, Check{"RDMA", Warn, "mlx5_0: ports/1/rate: is not a rate", "stepvan devices --json"}},
		{"no port", "", func(m *machine) {
			bare(m)
			m.devices.Device(devicetest.Device{Name: "mlx5_0", At: devicetest.Card0})
		}, Check{"RDMA", Warn, "ports: the kernel shows none", "stepvan devices"}},

		{"no cgo", "", func(m *machine) { m.library.Err = verbs.ErrNotInBuild }, Check{"RDMA library", Warn, "was built without cgo", "CGO_ENABLED=1"}},
		{"no library", demanded, func(m *machine) { m.library.Err = &verbs.LibraryError{Reason: "libibverbs.so.1: not found"} }, Check{"RDMA library", Fail, "libibverbs.so.1: not found", "apt-get install libibverbs1 librdmacm1 ibverbs-providers"}},
		{"broken library", "", func(m *machine) { m.library.Err = errors.New("odd") }, Check{"RDMA library", Warn, "odd", "apt-get install"}},
		{"no provider", "", func(m *machine) { m.library.Providers = nil }, Check{"RDMA library", Warn, "libibverbs has no provider for mlx5_0", "ibverbs-providers"}},
		{"no safe fork", "", func(m *machine) { m.library.ForkSafe = false }, Check{"RDMA library", OK, "a fork does not get registered memory", "Linux 5.12"}},

		{"no rdma_cm", "", func(m *machine) { m.opening["/dev/infiniband/rdma_cm"] = fs.ErrNotExist }, Check{"RDMA files", Warn, "there is no /dev/infiniband/rdma_cm", "modprobe rdma_ucm"}},
		{"no uverbs", demanded, func(m *machine) {
			m.opening["/dev/infiniband/uverbs0"] = &fs.PathError{Op: "open", Path: "x", Err: unix.ENOENT}
		}, Check{"RDMA files", Fail, "there is no /dev/infiniband/uverbs0", "--device=/dev/infiniband"}},
		{"no uverbs and so no provider", "", func(m *machine) {
			m.opening["/dev/infiniband/uverbs0"] = fs.ErrNotExist
			m.library.Providers = nil
		}, Check{"RDMA library", OK, "libibverbs and librdmacm work", ""}},
		{"files of root", "", func(m *machine) {
			m.opening["/dev/infiniband/uverbs0"] = &fs.PathError{Op: "open", Path: "x", Err: unix.EACCES}
		}, Check{"RDMA files", Warn, "/dev/infiniband/uverbs0 cannot be opened: permission denied", "udev"}},

		{"small MTU", "", func(m *machine) { m.devices.Interfaces[1].MTU = 1500 }, Check{"RDMA MTU", Warn, "mlx5_0 port 1 sends packets of 1024 bytes (want 4096)", "ip link set eth0 mtu 9000"}},
		{"ordered writes", "", func(m *machine) { m.devices.Files[config] = pciConfiguration(0x2800) }, Check{"RDMA ordering", Warn, "mlx5_0: PCI Express keeps its writes in order", "setpci -s 0000:17:00.0 CAP_EXP+8.w=10:10"}},
		{"free writes", "", func(m *machine) { m.devices.Files[config] = pciConfiguration(0x2810) }, Check{"RDMA ordering", -1, "", ""}},

		{"memlock", "", func(m *machine) { m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{8 << 20, unlimited} }, Check{"RDMA memory", Warn, "may pin 8MiB (any amount when asked for), and tensors that cannot be pinned are copied", "LimitMEMLOCK=infinity"}},
		{"memlock for nothing", demanded, func(m *machine) { m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{65536, 65536} }, Check{"RDMA memory", Fail, "may pin 64KiB, and the connections alone need 768KiB", "ulimit -l unlimited"}},
		{"memlock of root", "", func(m *machine) {
			m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{65536, 65536}
			m.write("proc/self/uid_map", "         0          0 4294967295\n")
			m.write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n")
		}, Check{"RDMA memory", OK, "any amount (CAP_IPC_LOCK)", ""}},
		{"memlock of root in a container", "", func(m *machine) {
			m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{65536, 65536}
			m.write("proc/self/uid_map", "0 1000 1\n")
			m.write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n")
		}, Check{"RDMA memory", Warn, "may pin 64KiB", "ulimit"}},
		{"memory of the group", "", func(m *machine) { m.write("sys/fs/cgroup/pod/box/memory.max", "8589934592\n") }, Check{"RDMA memory", OK, "may pin any amount, of 8GiB allowed by the control group", ""}},

		{"handles of the group", "", func(m *machine) {
			m.write("sys/fs/cgroup/pod/rdma.max", "mlx5_1 hca_handle=0 hca_object=0\nmlx5_0 hca_handle=3 hca_object=max\n")
			m.write("sys/fs/cgroup/pod/rdma.current", "mlx5_0 hca_handle=2 hca_object=20\n")
		}, Check{"RDMA group", Warn, "room for 1 more of hca_handle of mlx5_0, and a node may need 2", "> /sys/fs/cgroup/pod/rdma.max"}},
		{"objects of the group", demanded, func(m *machine) { m.write("sys/fs/cgroup/pod/rdma.max", "mlx5_0 hca_handle=max hca_object=10\n") }, Check{"RDMA group", Fail, "room for 10 more of hca_object of mlx5_0, and a node may need 88", "hca_object=max"}},
		{"no limit of the group", "", func(m *machine) { m.write("sys/fs/cgroup/pod/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n") }, Check{"RDMA group", -1, "", ""}},
	} {
		t.Run(c.title, func(t *testing.T) {
			m := withDevice()
			if c.damage != nil {
				c.damage(m)
			}
			requireFinding(t, m, c.env, c.want)
		})
	}
}

// pciConfiguration makes the configuration of a card with this device control.
func pciConfiguration(control uint16) *fstest.MapFile {
	b := make([]byte, 256)
	b[0x06], b[0x34], b[0x40] = 0x10, 0x40, 0x10
	binary.LittleEndian.PutUint16(b[0x48:], control)
	return &fstest.MapFile{Data: b}
}

func FuzzGroup(f *testing.F) {
	f.Add("mlx5_0 hca_handle=2 hca_object=2000\nmlx5_1 hca_handle=max", "mlx5_0")
	f.Add("mlx5_0 hca_handle=-1 hca_object= =3", "mlx5_0")
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, n := range parseGroup(text, name) {
			require.GreaterOrEqual(t, n, 0)
		}
	})
}
