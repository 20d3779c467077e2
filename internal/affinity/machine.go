package affinity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
