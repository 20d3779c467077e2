package affinity

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// groupRoots are where control groups are mounted: of version 2, and of version 1's cpu controller.
var groupRoots = map[string]string{"": "sys/fs/cgroup", "cpu": "sys/fs/cgroup/cpu"}

// Quota is the processor time per second, in cores, that the control groups of the process leave it; +Inf
// without a limit. What cannot be read limits nothing.
func (m Machine) Quota() float64 {
	least := math.Inf(1)
	groups, err := fs.ReadFile(m.root(), "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if root, ok := groupRoots[controller]; ok {
				least = min(least, m.quotaUpwards(root, parts[2]))
			}
		}
	}
	return least
}

// quotaUpwards is the least quota of a group and those around it.
func (m Machine) quotaUpwards(root, group string) float64 {
	least := math.Inf(1)
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		least = min(least, m.quotaAt(path.Join(root, dir)))
		if dir == "/" {
			return least
		}
	}
}

func (m Machine) quotaAt(dir string) float64 {
	quota, period := m.text(dir+"/cpu.cfs_quota_us"), m.text(dir+"/cpu.cfs_period_us")
	if both := strings.Fields(m.text(dir + "/cpu.max")); len(both) == 2 {
		quota, period = both[0], both[1]
	}
	q, errQ := strconv.ParseFloat(quota, 64) // "max" and -1 are no limit
	p, errP := strconv.ParseFloat(period, 64)
	if errQ != nil || errP != nil || !(q > 0 && p > 0) {
		return math.Inf(1)
	}
	return q / p
}

func (m Machine) text(path string) string {
	b, err := fs.ReadFile(m.root(), path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
