package affinity

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Machine reads the cores, NUMA nodes and control groups of the system. The zero value reads the
// real system; tests give another root of the file system.
type Machine struct{ Root fs.FS }

func (m Machine) root() fs.FS {
	if m.Root == nil {
		return os.DirFS("/")
	}
	return m.Root
}

const nodeDir = "sys/devices/system/node"

// NodesOf lists the NUMA nodes that the cores belong to, in order. The list is empty when the
// system has no information about nodes.
func (m Machine) NodesOf(s Set) ([]int, error) {
	list, err := fs.ReadDir(m.root(), nodeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the NUMA nodes: %w", err)
	}
	var nodes []int
	for _, e := range list {
		digits, ok := strings.CutPrefix(e.Name(), "node")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		cores, err := m.list(nodeDir + "/" + e.Name() + "/cpulist")
		if err != nil {
			return nil, err
		}
		if cores.And(s).Len() > 0 {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// Nodes is the number of NUMA nodes with cores, or 1 without information about nodes.
func (m Machine) Nodes() int {
	nodes, err := m.NodesOf(Range(0, MaxCores))
	if err != nil {
		return 1
	}
	return max(1, len(nodes))
}

func (m Machine) list(path string) (Set, error) {
	text, err := fs.ReadFile(m.root(), path)
	if err != nil {
		return Set{}, fmt.Errorf("read a list of cores: %w", err)
	}
	return Parse(string(text))
}

// cgroups is the folder where control groups are mounted.
const cgroups = "sys/fs/cgroup"

// GroupDirs lists the folders of the process's control groups that hold the limits of a controller,
// such as "cpu". It lists folders of version 2 and version 1, each group from the innermost out. A
// container may list the path of the host, where only the outermost folder exists.
func (m Machine) GroupDirs(controller string) (dirs []string) {
	for line := range strings.Lines(m.Text("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		root := cgroups
		if parts[1] != "" {
			if !slices.Contains(strings.Split(parts[1], ","), controller) {
				continue
			}
			root = path.Join(cgroups, controller)
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			dirs = append(dirs, path.Join(root, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

// Quota is the least processor time per second, in cores, that a control group of the process
// allows. Without a limit, or when none can be read, it is +Inf.
func (m Machine) Quota() float64 {
	least := math.Inf(1)
	for _, dir := range m.GroupDirs("cpu") {
		least = min(least, m.quotaAt(dir))
	}
	return least
}

func (m Machine) quotaAt(dir string) float64 {
	quota, period := m.Text(dir+"/cpu.cfs_quota_us"), m.Text(dir+"/cpu.cfs_period_us")
	if both := strings.Fields(m.Text(dir + "/cpu.max")); len(both) == 2 {
		quota, period = both[0], both[1]
	}
	q, errQ := strconv.ParseFloat(quota, 64) // "max" and -1 mean no limit
	p, errP := strconv.ParseFloat(period, 64)
	if errQ != nil || errP != nil || !(q > 0 && p > 0) {
		return math.Inf(1)
	}
	return q / p
}

// Throttled returns a function that counts how often the quotas of the process's control groups were used up before the
// end of a period. Without a quota it returns nil.
func (m Machine) Throttled() func() (periods int64) {
	var files []string
	for _, dir := range m.GroupDirs("cpu") {
		if !math.IsInf(m.quotaAt(dir), 1) {
			files = append(files, dir+"/cpu.stat")
		}
	}
	if len(files) == 0 {
		return nil
	}
	return func() (periods int64) {
		for _, file := range files {
			periods += m.throttledAt(file)
		}
		return periods
	}
}

func (m Machine) throttledAt(file string) int64 {
	for line := range strings.Lines(m.Text(file)) {
		if digits, found := strings.CutPrefix(line, "nr_throttled "); found {
			n, _ := strconv.ParseInt(strings.TrimSpace(digits), 10, 64) // of other text 0
			return n
		}
	}
	return 0
}

// Text reads a file of the machine, without the space around it: "" where that fails.
func (m Machine) Text(path string) string {
	b, err := fs.ReadFile(m.root(), path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
