package affinity

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Caches are the sizes of the caches of one core, in bytes. 0: not known.
type Caches struct {
	Second int64 // its share of the second-level cache
	Last   int64 // the whole cache of the third level
}

const coreDir = "sys/devices/system/cpu/cpu"

// Caches reads the caches of a core. Other cores of the machine may have others.
func (m Machine) Caches(core int) (c Caches) {
	dir := coreDir + strconv.Itoa(core)
	list, err := fs.Glob(m.root(), dir+"/cache/index*")
	if err != nil {
		return Caches{}
	}
	for _, cache := range list {
		if m.Text(path.Join(cache, "type")) == "Instruction" {
			continue
		}
		size := parseCacheSize(m.Text(path.Join(cache, "size")))
		switch m.Text(path.Join(cache, "level")) {
		case "2":
			c.Second = size / m.coresSharing(dir, cache)
		case "3":
			c.Last = size
		}
	}
	return c
}

// coresSharing counts the cores that share a cache with a core. The threads of a core count as one.
func (m Machine) coresSharing(dir, cache string) int64 {
	sharing, err := m.list(path.Join(cache, "shared_cpu_list"))
	if err != nil {
		return 1
	}
	threads, err := m.list(path.Join(dir, "topology/thread_siblings_list"))
	if err != nil {
		return 1
	}
	return int64(max(1, sharing.Len()/max(1, threads.Len())))
}

// parseCacheSize reads a size as the kernel writes it: "2048K". It returns 0 for other texts.
func parseCacheSize(text string) int64 {
	digits, inKiB := strings.CutSuffix(text, "K")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	if inKiB {
		n <<= 10
	}
	return n
}
