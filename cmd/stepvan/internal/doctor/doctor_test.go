package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/rdma/device/devicetest"
)

// machine is a System whose answers a test can change.
type machine struct {
	System
	files      fstest.MapFS
	hosts      map[string][]string
	interfaces []reach.Interface
	listen     map[string]error
	dial       error
	scheduler  error
	limits     map[int][2]uint64
	memory     map[bool]error // by huge
	cpus       int
	directory  error
	peerMemory error
	van        [2]string // name and reason
	pair       error
	devices    *devicetest.Tree
	library    rdma.Library
	opening    map[string]error // of files below /dev/infiniband
}

// inventory reads the devices of the machine.
func (m *machine) inventory(l *rdma.Library) (*device.Inventory, error) {
	return device.Machine{Root: m.devices.Files, Interfaces: func() (all []device.Interface, err error) {
		for _, f := range m.devices.Interfaces {
			all = append(all, device.Interface(f))
		}
		return all, nil
	}}.Read()
}

func addresses(texts ...string) (all reach.Addresses) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func (m *machine) write(name, text string) { m.files[name] = &fstest.MapFile{Data: []byte(text)} }

// healthy is a machine with nothing to find for worker().
func healthy() *machine {
	m := &machine{
		files: fstest.MapFS{},
		hosts: map[string][]string{"head": {"10.0.0.1"}, "self": {"10.0.0.2"}},
		interfaces: []reach.Interface{
			{Name: "lo", Up: true, Addresses: addresses("127.0.0.1", "::1")},
			{Name: "eth0", Up: true, Addresses: addresses("10.0.0.2", "fe80::1")},
			{Name: "eth1", Addresses: addresses("10.1.0.2")},
			{Name: "eth2", Up: true},
		},
		listen: map[string]error{},
		limits: map[int][2]uint64{unix.RLIMIT_MEMLOCK: {8 << 20, 8 << 20}, unix.RLIMIT_NOFILE: {1024, 4096}, unix.RLIMIT_NPROC: {9999, 9999}},
		memory: map[bool]error{},
		cpus:   16,
		van:    [2]string{"shm", "same machine"},

		devices: devicetest.New(),
		opening: map[string]error{},
	}
	m.write("proc/self/cgroup", "0::/pod/box\n")
	m.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n")
	m.write("proc/sys/net/core/rmem_max", "4194304\n")
	m.write("proc/sys/net/core/wmem_max", "4194304\n")
	m.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
	m.System = System{
		Host: reach.Host{
			Lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
				if ip, err := netip.ParseAddr(host); err == nil {
					return []netip.Addr{ip}, nil
				}
				if a := m.hosts[host]; a != nil {
					return addresses(a...), nil
				}
				return nil, &net.DNSError{Err: "no such host", Name: host}
			},
			Interfaces: func() ([]reach.Interface, error) { return m.interfaces, nil },
			Route:      func(netip.Addr) (netip.Addr, error) { return netip.MustParseAddr("10.0.0.2"), nil },
			Device:     func(*config.Settings) netip.Addr { return netip.Addr{} },
		},
		Machine:    affinity.Machine{Root: m.files},
		Listen:     func(_ context.Context, addr string) error { return m.listen[addr] },
		Dial:       func(context.Context, string) error { return m.dial },
		Scheduler:  func(context.Context, config.Settings) error { return m.scheduler },
		Limit:      func(r int) (uint64, uint64, error) { return m.limits[r][0], m.limits[r][1], nil },
		Memory:     func(_ int64, huge bool) error { return m.memory[huge] },
		CPUs:       func() int { return m.cpus },
		Directory:  func() (string, error) { return "/tmp/stepvan-7", m.directory },
		PeerMemory: func() error { return m.peerMemory },
		Library:    func() *rdma.Library { return &m.library },
		Inventory:  m.inventory,
		OpenFile:   func(name string) error { return m.opening[name] },
		Pair:       func(context.Context, config.Settings) (string, string, error) { return m.van[0], m.van[1], m.pair },
	}
	return m
}

// worker is a valid setting of a worker on the healthy machine, changed by words NAME=value.
func worker(t *testing.T, words string) config.Settings {
	t.Helper()
	env := map[string]string{}
	for _, w := range strings.Fields("DMLC_ROLE=worker DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=2 DMLC_PS_ROOT_URI=head DMLC_PS_ROOT_PORT=8123 " + words) {
		name, value, _ := strings.Cut(w, "=")
		env[name] = value
	}
	s, _, err := config.FromEnv(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, nil)
	require.NoError(t, err)
	return s
}

func TestHealthyMachine(t *testing.T) {
	checks := Run(t.Context(), worker(t, "DMLC_ROLE=joint DMLC_NODE_HOST=self DMLC_INTERFACE=eth0 DMLC_PORT=9000"), Options{System: &healthy().System})
	require.Equal(t, OK, Worst(checks), "%+v", checks)
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
		require.NotEmpty(t, c.Found)
		require.Empty(t, c.Fix)
	}
	require.Equal(t, []string{
		"settings", "heartbeats", "scheduler name", "address", "data port", "root port", "memlock", "open files",
		"threads", "cores", "shared memory", "memory", "huge pages",
		"private directory", "peer memory", "ring memory", "van", "socket buffers", "RDMA", "clock",
	}, names)
}

func TestFindings(t *testing.T) {
	const scheduler, server, peer = "DMLC_ROLE=scheduler DMLC_PS_ROOT_URI=10.0.0.2 ", "DMLC_ROLE=server ", "DMLC_ROLE=peer STEPVAN_NUM_PEER=10 "
	cases := []struct {
		title, env string
		damage     func(*machine)
		want       Check // Found and Fix: a part of them
	}{
		{"trace directory", "STEPVAN_TRACE_FILE=/no/such/t.json", nil, Check{"trace file", Fail, "/no/such is not a directory", "mkdir -p /no/such"}},
		{"trace directory there", "STEPVAN_TRACE_FILE=/proc/t.json", nil, Check{"trace file", OK, "/proc is there", ""}},

		{"scheduler unknown", "DMLC_PS_ROOT_URI=haed", nil, Check{"scheduler name", Fail, "DMLC_PS_ROOT_URI=haed", "set an address, or a name that `getent hosts haed` finds"}},
		{"local elsewhere", "DMLC_LOCAL=1", nil, Check{"scheduler name", Warn, "head (10.0.0.1) is another machine", "DMLC_PS_ROOT_URI=127.0.0.1"}},
		{"scheduler elsewhere", "DMLC_ROLE=scheduler", nil, Check{"scheduler name", Warn, "head (10.0.0.1) is not an address of this machine", "set DMLC_PS_ROOT_URI to one of 10.0.0.2, 10.1.0.2"}},
		{"name of the loopback", "", func(m *machine) { m.hosts["head"] = []string{"127.0.1.1"} }, Check{"scheduler name", Warn, "head (127.0.1.1) is the loopback", "/etc/hosts"}},
		{"localhost is meant", "DMLC_PS_ROOT_URI=localhost", func(m *machine) { m.hosts["localhost"] = []string{"::1"} }, Check{"scheduler name", OK, "localhost (::1)", ""}},

		{"address on the route", server, nil, Check{"address", OK, "workers reach this server at 10.0.0.2", ""}},
		{"address of a peer", peer, nil, Check{"address", OK, "the other peers reach this one at 10.0.0.2", ""}},
		{"data port of a peer", peer + "DMLC_PORT=9000", nil, Check{"data port", OK, "9000 is free", ""}},
		{"node unknown", server + "DMLC_NODE_HOST=nobody", nil, Check{"address", Fail, "DMLC_NODE_HOST=nobody", "set an address, or a name that `getent hosts nobody` finds"}},
		{"node elsewhere", server + "DMLC_NODE_HOST=10.9.9.9", nil, Check{"address", Warn, "10.9.9.9 is not an address of this machine", "set DMLC_NODE_HOST to one of 10.0.0.2"}},
		{"no interface", server + "DMLC_INTERFACE=eth7", nil, Check{"address", Fail, "DMLC_INTERFACE=eth7", "is not a network interface of this machine: set one of lo, eth0 (10.0.0.2)"}},
		{"interface down", server + "DMLC_INTERFACE=eth1", nil, Check{"address", Warn, "eth1 is down", "ip link set eth1 up"}},
		{"interface without address", server + "DMLC_INTERFACE=eth2", nil, Check{"address", Fail, "DMLC_INTERFACE=eth2", "ip addr add ADDRESS/PREFIX dev eth2"}},
		{"interface is loopback", server + "DMLC_INTERFACE=lo", nil, Check{"address", Fail, "DMLC_INTERFACE=lo", "leads every machine to itself"}},
		{"interface is loopback, beside the scheduler", server + "DMLC_INTERFACE=lo DMLC_PS_ROOT_URI=10.0.0.2", nil, Check{"address", Warn, "127.0.0.1 is the loopback", "set DMLC_NODE_HOST to one of 10.0.0.2"}},
		{"nothing to choose from", server + "DMLC_INTERFACE=eth7", func(m *machine) { m.interfaces = nil }, Check{"address", Fail, "eth7", "`ip addr`"}},
		{"auto interface", server + "DMLC_INTERFACE=auto", nil, Check{"address", OK, "workers reach this server at 10.0.0.2", ""}},

		{"root port taken", scheduler, func(m *machine) { m.listen[":8123"] = opError(unix.EADDRINUSE) }, Check{"root port", Fail, "DMLC_PS_ROOT_PORT=8123", "another program listens at this port: stop it (ss -ltnp 'sport = :8123' shows it)"}},
		{"root port privileged", scheduler + "DMLC_PS_ROOT_PORT=80", func(m *machine) { m.listen[":80"] = opError(unix.EACCES) }, Check{"root port", Fail, "DMLC_PS_ROOT_PORT=80", "ports below 1024 are for root"}},
		{"root port impossible", scheduler, func(m *machine) { m.listen[":8123"] = opError(unix.ENETDOWN) }, Check{"root port", Fail, "DMLC_PS_ROOT_PORT=8123", "network is down"}},
		{"root port free", scheduler, nil, Check{"root port", OK, "8123 is free", ""}},
		{"root port any", scheduler + "DMLC_PS_ROOT_PORT=0", nil, Check{"root port", OK, "a free one", ""}},
		{"scheduler not started", "", func(m *machine) { m.dial = opError(unix.ECONNREFUSED) }, Check{"root port", Warn, "nothing listens at head:8123", "start the scheduler"}},
		{"scheduler behind a wall", "", func(m *machine) { m.dial = context.DeadlineExceeded }, Check{"root port", Warn, "no answer from head:8123 within 1s", "let port 8123 through the firewall"}},
		{"scheduler without a way", "", func(m *machine) { m.dial = opError(unix.ENETUNREACH) }, Check{"root port", Warn, "network is unreachable", "ip route get head"}},
		{"scheduler", "", nil, Check{"root port", OK, "the scheduler listens at head:8123", ""}},
		{"another program at the root port", "", func(m *machine) {
			m.scheduler = &stepvan.ProtocolError{Field: "magic", Reason: "no stepvan peer"}
		}, Check{"root port", Fail, "what listens at head:8123 is not a scheduler of this version: protocol error", "ss -ltnp 'sport = :8123'"}},
		{"silent program at the root port", "", func(m *machine) { m.scheduler = context.DeadlineExceeded }, Check{"root port", Warn, "what listens at head:8123 has not answered as a scheduler within 3s", "ss -ltnp"}},
		{"short heartbeat timeout", "PS_HEARTBEAT_TIMEOUT=3ms", nil, Check{"heartbeats", Warn, "a peer that is silent for 3ms is lost", "PS_HEARTBEAT_TIMEOUT"}},
		{"heartbeats off", "PS_HEARTBEAT_INTERVAL=0", nil, Check{"heartbeats", OK, "off", ""}},
		{"data port taken", server + "DMLC_PORT=9000 DMLC_NUM_PORTS=2", func(m *machine) { m.listen["10.0.0.2:9001"] = opError(unix.EADDRINUSE) }, Check{"data port", Fail, "DMLC_PORT=9001", "another program listens at this port"}},

		{"memlock without RDMA", "STEPVAN_VAN=rdma", nil, Check{"memlock", OK, "may pin 8MiB", ""}},
		{"memlock with a higher hard limit", "STEPMESH_BACKEND=GPU", func(m *machine) { m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{65536, unlimited} }, Check{"memlock", Warn, "may pin 64KiB (any amount when asked for)", "ulimit -l unlimited"}},
		{"memlock for accelerators", "STEPMESH_BACKEND=GPU", nil, Check{"memlock", Warn, "accelerators pin", "LimitMEMLOCK=infinity"}},
		{"memlock unlimited", "STEPMESH_BACKEND=GPU", func(m *machine) { m.limits[unix.RLIMIT_MEMLOCK] = [2]uint64{unlimited, unlimited} }, Check{"memlock", OK, "any amount", ""}},
		{"open files", "DMLC_ROLE=scheduler DMLC_NUM_WORKER=3000 DMLC_NUM_SERVER=2000", nil, Check{"open files", Fail, "4096, and 5000 peers need 5064", "ulimit -Hn 5064"}},
		{"open files of rails", "STEPVAN_RAILS=16 DMLC_NUM_SERVER=256", nil, Check{"open files", Fail, "257 peers need 4176", "STEPVAN_RAILS"}},
		{"open files of shared memory", "DMLC_NUM_SERVER=1500", nil, Check{"open files", Fail, "1501 peers need 4567", "ulimit -Hn 4567"}},
		{"open files of TCP", "DMLC_NUM_SERVER=1100 STEPVAN_VAN=tcp", nil, Check{"open files", OK, "1101 peers need 1165", ""}},
		{"open files unlimited", "", func(m *machine) { m.limits[unix.RLIMIT_NOFILE] = [2]uint64{1024, unlimited} }, Check{"open files", OK, "any number", ""}},
		{"threads of the group", "", func(m *machine) {
			m.write("sys/fs/cgroup/pod/pids.max", "100\n")
			m.write("sys/fs/cgroup/pod/pids.current", "90\n")
		}, Check{"threads", Warn, "room for 10 more", "--pids-limit"}},
		{"threads of the group unlimited", "", func(m *machine) {
			m.write("sys/fs/cgroup/pod/pids.max", "max\n")
			m.write("sys/fs/cgroup/pod/pids.current", "90\n")
		}, Check{"threads", OK, "there is room", ""}},
		{"threads of the user", "", func(m *machine) { m.limits[unix.RLIMIT_NPROC] = [2]uint64{10, 10} }, Check{"threads", Warn, "the user may have 10", "ulimit -u"}},

		{"few cores", "DMLC_PS_ROOT_URI=127.0.0.1", func(m *machine) { m.cpus = 2 }, Check{"cores", Warn, "2 for 5 processes", "STEPVAN_PROGRESS=park"}},
		{"few cores and spinning", "DMLC_LOCAL=1 DMLC_PS_ROOT_URI=10.0.0.2 STEPVAN_PROGRESS=spin", func(m *machine) { m.cpus = 2 }, Check{"cores", Fail, "2 for 5 processes", "STEPVAN_PROGRESS=auto"}},
		{"a group on few cores", "DMLC_GROUP_SIZE=8", func(m *machine) { m.cpus = 4 }, Check{"cores", Warn, "4 for 8 processes", "fewer processes"}},
		{"joint on one core", "DMLC_ROLE=joint DMLC_PS_ROOT_URI=localhost", func(m *machine) { m.cpus = 1 }, Check{"cores", Warn, "1 for 2 processes", ""}},
		{"quota", "", func(m *machine) { m.write("sys/fs/cgroup/pod/box/cpu.max", "150000 100000\n") }, Check{"core quota", Warn, "the time of 1.5 of 16 cores", "--cpus=16"}},
		{"quota of an outer group", "", func(m *machine) { m.write("sys/fs/cgroup/cpu.max", "50000 100000\n") }, Check{"core quota", Warn, "0.5 of 16", "limits.cpu"}},
		{"quota of version 1", "", func(m *machine) {
			m.write("proc/self/cgroup", "4:cpuacct,cpu:/box\n")
			m.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000")
			m.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000")
		}, Check{"core quota", Warn, "2 of 16", "CPUQuota=1600%"}},
		{"quota and spinning", "STEPVAN_PROGRESS=spin", func(m *machine) { m.write("sys/fs/cgroup/cpu.max", "50000 100000\n") }, Check{"core quota", Fail, "spinning uses up", "STEPVAN_PROGRESS=park"}},
		{"pinning", "STEPMESH_BIND_CPU_CORE=1", nil, Check{"pinning", OK, "cores 10-14", ""}},

		{"no memfd", "", func(m *machine) { m.memory[false] = unix.EPERM }, Check{"shared memory", Warn, "operation not permitted", "seccomp"}},
		{"no memfd, shm demanded", "STEPVAN_VAN=shm", func(m *machine) { m.memory[false] = unix.ENOSYS }, Check{"shared memory", Fail, "function not implemented", "seccomp"}},
		{"no descriptors", "", func(m *machine) { m.memory[false] = unix.EMFILE }, Check{"shared memory", Fail, "too many open files", "ulimit -n"}},
		{"no memory", "", func(m *machine) { m.memory[false] = unix.ENOMEM }, Check{"shared memory", Fail, "cannot allocate memory", "limits.memory"}},
		{"pool beyond the group", "", func(m *machine) { m.write("sys/fs/cgroup/pod/box/memory.max", "1073741824\n") }, Check{"memory", Warn, "1GiB allowed by the control group, and the pool may grow to 4GiB", "set STEPVAN_POOL_BYTES=512MiB"}},
		{"pool beyond the group of version 1", "", func(m *machine) {
			m.write("proc/self/cgroup", "4:memory:/box\n")
			m.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
		}, Check{"memory", Warn, "1GiB allowed", "STEPVAN_POOL_BYTES"}},
		{"pool beyond the machine", "STEPVAN_POOL_BYTES=64GiB", nil, Check{"memory", Warn, "32GiB available on this machine", "STEPVAN_POOL_BYTES=16GiB"}},
		{"huge pages demanded", "STEPVAN_HUGEPAGES=on", func(m *machine) { m.memory[true] = unix.ENOMEM }, Check{"huge pages", Fail, "none are reserved", "sysctl -w vm.nr_hugepages"}},
		{"no huge pages", "", func(m *machine) { m.memory[true] = unix.ENOMEM }, Check{"huge pages", OK, "pages of 4KiB", "shmem_enabled"}},
		{"transparent huge pages", "", func(m *machine) {
			m.memory[true] = unix.ENOMEM
			m.write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [within_size] advise never\n")
		}, Check{"huge pages", OK, "transparent", ""}},

		{"directory", "", nil, Check{"private directory", OK, "/tmp/stepvan-7, for this user alone", ""}},
		{"directory of another", "", func(m *machine) { m.directory = errors.New("others can enter it") }, Check{"private directory", Warn, "others can enter it", "set TMPDIR"}},
		{"directory of another, shm demanded", "STEPVAN_VAN=shm", func(m *machine) { m.directory = errors.New("others can enter it") }, Check{"private directory", Fail, "others can enter it", "set TMPDIR"}},
		{"peer memory", "", nil, Check{"peer memory", OK, "may be read", ""}},
		{"peer memory of children only", "", func(m *machine) { m.write("proc/sys/kernel/yama/ptrace_scope", "1\n") }, Check{"peer memory", OK, "by parents only", "kernel.yama.ptrace_scope=0"}},
		{"peer memory filtered", "", func(m *machine) { m.peerMemory = unix.ENOSYS }, Check{"peer memory", OK, "function not implemented", "seccomp"}},
		{"ring memory", "DMLC_NUM_SERVER=1000", nil, Check{"ring memory", OK, "804000KiB for up to 1000 peers on this machine, 804KiB each", ""}},
		{"ring memory of a peer", peer, nil, Check{"ring memory", OK, "936KiB for up to 9 peers on this machine, 104KiB each", ""}},
		{"ring memory of a peer with large rings", peer + "STEPVAN_PEER_RING_BYTES=400000", nil, Check{"ring memory", OK, "4968KiB for up to 9 peers on this machine, 552KiB each", ""}},
		{"ring memory with many grants", "DMLC_NUM_SERVER=10 STEPVAN_GRANTS=65536", nil, Check{"ring memory", OK, "51240KiB for up to 10 peers", ""}},
		{"ring memory of a joint node", "DMLC_ROLE=joint DMLC_NUM_SERVER=10 DMLC_NUM_WORKER=10", nil, Check{"ring memory", OK, "16080KiB for up to 20 peers", ""}},
		{"ring memory in a small container", "DMLC_NUM_SERVER=500", func(m *machine) { m.write("sys/fs/cgroup/pod/memory.max", strconv.Itoa(512<<20)) }, Check{"ring memory", Warn, "of 512MiB allowed by the control group", "limits.memory"}},
		{"peer memory that is not wanted", "STEPVAN_PEER_MEMORY=0", func(m *machine) { m.peerMemory = unix.ENOSYS }, Check{"peer memory", OK, "is not read (STEPVAN_PEER_MEMORY=0)", ""}},
		{"peer memory broken", "", func(m *machine) { m.peerMemory = unix.EFAULT }, Check{"peer memory", OK, "bad address", "seccomp"}},
		{"van", "", nil, Check{"van", OK, "shm between nodes of this machine (same machine); with others rdma where both have a device, else tcp", ""}},
		{"van of this machine", "DMLC_LOCAL=1 DMLC_PS_ROOT_URI=10.0.0.2", nil, Check{"van", OK, "shm between nodes of this machine (same machine)", ""}},
		{"van of other machines", "STEPVAN_VAN=shm+rdma", nil, Check{"van", OK, "shm between nodes of this machine (same machine), rdma with others", ""}},
		{"van demanded", "STEPVAN_VAN=shm", nil, Check{"van", OK, "shm between nodes of this machine (same machine)", ""}},
		{"second best van", "", func(m *machine) { m.van = [2]string{"tcp", "shm: no memfd"} }, Check{"van", Warn, "tcp between nodes of this machine (shm: no memfd)", "STEPVAN_VAN=tcp"}},
		{"tcp demanded", "STEPVAN_VAN=tcp", func(m *machine) { m.van = [2]string{"tcp", "STEPVAN_VAN=tcp"} }, Check{"van", OK, "tcp between nodes of this machine (STEPVAN_VAN=tcp), and with others", ""}},
		{"no van", "STEPVAN_VAN=shm", func(m *machine) { m.pair = errors.New("no memfd") }, Check{"van", Fail, "no memfd", "STEPVAN_VAN=auto"}},

		{"small socket buffers", "", func(m *machine) {
			m.write("proc/sys/net/core/rmem_max", "212992\n")
			m.write("proc/sys/net/core/wmem_max", "212992\n")
		}, Check{"socket buffers", Warn, "net.core.rmem_max is 208KiB, net.core.wmem_max is 208KiB", "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"}},
		{"slow clock", "", func(m *machine) {
			const dir = "sys/devices/system/clocksource/clocksource0/"
			m.write(dir+"current_clocksource", "hpet\n")
			m.write(dir+"available_clocksource", "hpet kvm-clock acpi_pm\n")
		}, Check{"clock", Warn, "hpet takes microseconds", "echo kvm-clock > /sys/devices"}},
		{"slow clock, no other", "", func(m *machine) {
			m.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n")
		}, Check{"clock", Warn, "acpi_pm", "echo tsc"}},
	}
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			m := healthy()
			if c.damage != nil {
				c.damage(m)
			}
			requireFinding(t, m, c.env, c.want)
		})
	}
}

func opError(errno error) error {
	return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
}

// requireFinding requires that the worst check of a name is as wanted. A finding always says what to do.
func requireFinding(t *testing.T, m *machine, env string, want Check) {
	t.Helper()
	checks := Run(t.Context(), worker(t, env), Options{System: &m.System})
	got := worstNamed(checks, want.Name)
	require.Equal(t, want.Status, got.Status, "%+v", checks)
	require.Contains(t, got.Found, want.Found)
	require.Contains(t, got.Fix, want.Fix)
	if want.Status > OK {
		require.NotEmpty(t, got.Fix)
	}
}

func worstNamed(checks []Check, name string) Check {
	worst := Check{Status: -1}
	for _, c := range checks {
		if c.Name == name && c.Status > worst.Status {
			worst = c
		}
	}
	return worst
}

func TestSettingsMistakesAreFindings(t *testing.T) {
	mistakes := errors.Join(
		&stepvan.ConfigError{Key: "DMLC_ROLE", Reason: "is not set: set it to one of worker, server"},
		&stepvan.ConfigError{Key: "DMLC_NUM_WORKER", Value: "x", Reason: "must be a whole number"},
		errors.New("something else"),
	)
	warnings := []config.Warning{{Key: "STEPVAN_VNA", Value: "tcp", Reason: "is not a setting; did you mean STEPVAN_VAN?"}}
	checks := Run(t.Context(), config.Default(), Options{System: &healthy().System, Mistakes: mistakes, Warnings: warnings})
	require.Equal(t, []Check{
		{"settings", Fail, "DMLC_ROLE", "DMLC_ROLE: is not set: set it to one of worker, server"},
		{"settings", Fail, "DMLC_NUM_WORKER=x", "DMLC_NUM_WORKER: must be a whole number"},
		{"settings", Fail, "something else", "stepvan env shows the settings"},
		{"settings", Warn, "STEPVAN_VNA=tcp", "STEPVAN_VNA: is not a setting; did you mean STEPVAN_VAN?"},
	}, checks[:4])
	for _, c := range checks {
		require.NotEqual(t, "root port", c.Name, "without a role there is no port to look at")
	}
}

// doctor repeats once what ps says of missing cores. It asks for nothing where the node continues without them.
func TestMissingCoresAreSaidOnce(t *testing.T) {
	m := healthy()
	m.cpus = 8
	of := func(o Options, words string) (found []Check) {
		o.System = &m.System
		for _, c := range Run(t.Context(), worker(t, words), o) {
			if c.Name == "pinning" || c.Name == "settings" && c.Status != OK {
				found = append(found, c)
			}
		}
		return found
	}
	why := "device 0 would get the cores 10-14, and this process may use 0-7"
	require.Equal(t, []Check{{"pinning", Warn, why + ": nothing is bound", ""}}, of(Options{
		Warnings: []config.Warning{{Key: "STEPMESH_BIND_CPU_CORE", Value: "1", Reason: why + ": nothing is bound"}},
	}, "STEPMESH_BIND_CPU_CORE=1"))
	require.Equal(t, []Check{{"settings", Fail, "STEPMESH_CPU_START_OFFSET=10", "STEPMESH_CPU_START_OFFSET: " + why + ": set another"}}, of(Options{
		Mistakes: &stepvan.ConfigError{Key: "STEPMESH_CPU_START_OFFSET", Value: "10", Reason: why + ": set another"},
	}, "STEPMESH_BIND_CPU_CORE=1 STEPMESH_CPU_START_OFFSET=10"))
}

func TestSilentMachineIsNoFinding(t *testing.T) {
	m := healthy()
	clear(m.files)
	m.Interfaces = func() ([]reach.Interface, error) { return nil, unix.EPERM }
	m.Limit = func(int) (uint64, uint64, error) { return 0, 0, unix.EPERM }
	checks := Run(t.Context(), worker(t, "DMLC_NODE_HOST=10.9.9.9 DMLC_INTERFACE=eth9"), Options{System: &m.System})
	require.Equal(t, OK, Worst(checks), "%+v", checks)
}

// The real machine is asked for what must be true of every machine that runs this test.
func TestThisMachine(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	s := worker(t, "DMLC_ROLE=scheduler DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT="+strconv.Itoa(taken))
	require.Equal(t, Fail, worstNamed(Run(t.Context(), s, Options{}), "root port").Status)

	s = worker(t, "DMLC_ROLE=joint DMLC_INTERFACE=lo DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT="+strconv.Itoa(taken))
	checks := Run(t.Context(), s, Options{})
	require.Equal(t, Warn, worstNamed(checks, "root port").Status, "who listens there says nothing: %+v", checks)
	for _, name := range []string{"address", "shared memory", "private directory", "van"} {
		require.Equal(t, OK, worstNamed(checks, name).Status, "%+v", checks)
	}
}

func TestPrint(t *testing.T) {
	checks := []Check{
		{"cores", OK, "16", ""},
		{"root port", Fail, "8123 is taken", "stop it"},
		{"memlock", Warn, "may pin 8MiB", "ulimit -l unlimited"},
		{"pages", OK, "small", "larger ones"},
	}
	var b strings.Builder
	require.NoError(t, Print(&b, checks, false))
	require.Equal(t, `ok    cores      16
fail  root port  8123 is taken
                 to do: stop it
warn  memlock    may pin 8MiB
                 to do: ulimit -l unlimited
ok    pages      small
                 better: larger ones

1 to repair before a node can start, 1 to look at
`, b.String())
	b.Reset()
	require.NoError(t, Print(&b, checks[:1], true))
	require.Equal(t, "\x1b[32mok  \x1b[0m  cores  16\n\nnothing to do\n", b.String())
	b.Reset()
	require.NoError(t, Print(&b, checks[2:3], false))
	require.Contains(t, b.String(), "nothing prevents a start, 1 to look at")
}
