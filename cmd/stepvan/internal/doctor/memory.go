package doctor

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/shm"
)

// sample is the size of the shared memory that the doctor takes for a moment: one huge page.
const sample = 2 << 20

// checkMemory checks the memory of tensors: memory files that are fully allocated. They do not
// count against the size of /dev/shm.
func (d sharing) checkMemory() {
	d.checkShared()
	d.checkPool()
	d.checkHuge()
}

// checkShared takes some shared memory. Without memory files a node works over sockets, and more
// slowly.
func (d sharing) checkShared() {
	err := d.sys.Memory(sample, false)
	switch {
	case err == nil:
		d.ok("shared memory", "memory files work")
	case shm.NoFiles(err):
		d.add("shared memory", d.sharingStatus(), err.Error()+", so no process can share memory with this one", "let memfd_create, fallocate and fcntl through the seccomp profile of the container (docker: --security-opt seccomp=PROFILE)")
	case errors.Is(err, unix.EMFILE):
		d.fail("shared memory", err.Error(), "ulimit -n 65536 before the start")
	default:
		d.fail("shared memory", err.Error(), "raise the memory limit of the container (docker: --memory; Kubernetes: limits.memory), or free memory")
	}
}

// checkPool compares the pool's limit with the free memory.
func (d sharing) checkPool() {
	have, where := d.memory()
	pool := d.settings.PoolBytes
	if have == 0 {
		return
	}
	found := rounded(have).String() + " " + where
	if pool > have {
		d.warn("memory", found+", and the pool may grow to "+pool.String(), "set STEPVAN_POOL_BYTES="+rounded(have/2).String()+", or raise the memory limit")
		return
	}
	d.ok("memory", found)
}

const allowedByGroup = "allowed by the control group"

// memory is what this process may still take; 0 when it is unknown.
func (d sharing) memory() (config.Bytes, string) {
	free, _ := d.lineNumber("proc/meminfo", "MemAvailable:")
	have, where := config.Bytes(free)<<10, "available on this machine"
	for _, dir := range d.sys.Machine.GroupDirs("memory") {
		for _, name := range []string{"/memory.max", "/memory.limit_in_bytes"} {
			most, ok := d.number(dir + name)
			if ok && (have == 0 || config.Bytes(most) < have) {
				have, where = config.Bytes(most), allowedByGroup
			}
		}
	}
	return have, where
}

// rounded rounds down to a MiB.
func rounded(b config.Bytes) config.Bytes { return max(b&^(1<<20-1), 1<<20) }

// checkHuge looks for huge pages: reserved ones, then transparent ones.
func (d sharing) checkHuge() {
	if d.settings.Hugepages == config.HugepagesOff {
		return
	}
	const fix = "sysctl -w vm.nr_hugepages=512 reserves 1GiB"
	err := d.sys.Memory(sample, true)
	switch {
	case err == nil:
		d.ok("huge pages", "reserved ones are there")
	case d.settings.Hugepages == config.HugepagesOn:
		d.fail("huge pages", "none are reserved, and STEPVAN_HUGEPAGES=on demands them", fix+"; or set STEPVAN_HUGEPAGES=auto")
	case d.transparent():
		d.ok("huge pages", "transparent ones, none reserved")
	default:
		d.add("huge pages", OK, "none, so memory is in pages of 4KiB", fix+", which makes large tensors faster; or echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
	}
}

// transparent reports whether the kernel uses huge pages for shared memory without a request.
func (d sharing) transparent() bool {
	mode := d.text("sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return strings.Contains(mode, "[always]") || strings.Contains(mode, "[within_size]") || strings.Contains(mode, "[force]")
}
