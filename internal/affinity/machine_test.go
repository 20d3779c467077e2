package affinity

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func files(of map[string]string) Machine {
	root := fstest.MapFS{}
	for name, text := range of {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Machine{Root: root}
}

func TestNodesOfCores(t *testing.T) {
	m := files(map[string]string{
		"sys/devices/system/node/node0/cpulist":  "0-3,8-11\n",
		"sys/devices/system/node/node10/cpulist": "4-7\n",
		"sys/devices/system/node/node2/cpulist":  "\n", // memory without cores
		"sys/devices/system/node/possible":       "0-10\n",
	})
	for _, c := range []struct {
		first, n int
		want     []int
	}{{0, 2, []int{0}}, {3, 2, []int{0, 10}}, {4, 4, []int{10}}, {12, 9, nil}} {
		nodes, err := m.NodesOf(Range(c.first, c.n))
		require.NoError(t, err)
		require.Equal(t, c.want, nodes)
	}
	require.Equal(t, 2, m.Nodes())
}

func TestMachinesThatTellNothing(t *testing.T) {
	m := files(nil)
	nodes, err := m.NodesOf(Range(0, 4))
	require.NoError(t, err)
	require.Empty(t, nodes)
	require.Equal(t, 1, m.Nodes())
	require.True(t, math.IsInf(m.Quota(), 1))
	bad := files(map[string]string{"sys/devices/system/node/node0/cpulist": "what"})
	_, err = bad.NodesOf(Range(0, 1))
	require.Error(t, err)
}

func TestQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"version 2, the group around it is tighter": {map[string]string{
			"proc/self/cgroup":                 "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max":        "400000 100000\n",
			"sys/fs/cgroup/a/cpu.max":          "150000 100000\n",
			"sys/fs/cgroup/elsewhere/cpu.max":  "1 100000\n",
			"sys/fs/cgroup/a/b/deeper/cpu.max": "1 100000\n",
		}, 1.5},
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n",
		}, math.Inf(1)},
		"version 1": {map[string]string{
			"proc/self/cgroup":                          "3:memory:/x\n4:cpu,cpuacct:/pod\n",
			"sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us":    "50000\n",
			"sys/fs/cgroup/cpu/pod/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":        "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":       "100000\n",
			"sys/fs/cgroup/memory/pod/cpu.cfs_quota_us": "1\n",
		}, 0.5},
		"nonsense": {map[string]string{
			"proc/self/cgroup": "0::/../../x\nwhat\n", "sys/fs/cgroup/x/cpu.max": "NaN 100\n", "sys/fs/cgroup/cpu.max": "1 0\n",
		}, math.Inf(1)},
	} {
		require.Equal(t, c.want, files(c.files).Quota(), name)
	}
}

func TestHowOftenAQuotaWasUsedUp(t *testing.T) {
	m := files(map[string]string{
		"proc/self/cgroup":             "0::/a/b\n",
		"sys/fs/cgroup/a/b/cpu.max":    "max 100000\n",
		"sys/fs/cgroup/a/b/cpu.stat":   "nr_throttled 100\n",
		"sys/fs/cgroup/a/cpu.max":      "150000 100000\n",
		"sys/fs/cgroup/a/cpu.stat":     "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 7\n",
		"sys/fs/cgroup/cpu.max":        "350000 100000\n",
		"sys/fs/cgroup/cpu.stat":       "nr_periods 9\nnr_throttled 4\n",
		"sys/fs/cgroup/other/cpu.stat": "nr_throttled 1000\n",
		"sys/fs/cgroup/other/cpu.max":  "1 100000\n",
	})
	require.Equal(t, int64(7), m.Throttled()(), "of the groups with a quota")
	require.Nil(t, files(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}).Throttled())
	bad := files(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1 2\n", "sys/fs/cgroup/cpu.stat": "nr_throttled many\n"})
	require.Zero(t, bad.Throttled()())
}
