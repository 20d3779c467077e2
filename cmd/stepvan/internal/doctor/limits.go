package doctor

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/config"
)

const (
	// ownFiles are the descriptors of a node without peers: log, epoll, memory files, listeners.
	ownFiles = 64
	// sharedFiles are the descriptors for a peer with which memory is shared: socket, process, ring.
	sharedFiles = 3
	// ownThreads are the threads of a node at most: the runtime's, the driver's, and spare ones.
	ownThreads = 64
	// pinned is the least host memory that an accelerator must be allowed to pin.
	pinned = config.Bytes(1 << 30)
)

// checkLimits looks at the limits of this process.
func (d host) checkLimits() {
	d.checkMemlock()
	d.checkFiles()
	d.checkPIDs()
}

func (d host) checkMemlock() {
	soft, hard, err := d.sys.Limit(unix.RLIMIT_MEMLOCK)
	if err != nil {
		return
	}
	const fix = "ulimit -l unlimited before the start (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1; Kubernetes: of the container runtime; all users: /etc/security/limits.conf)"
	found := "may pin " + amount(soft)
	if enough := soft == unlimited || soft >= uint64(pinned); enough || d.settings.Backend != config.BackendGPU {
		d.ok("memlock", found)
		return
	}
	d.warn("memlock", found+hardNote(soft, hard)+", and accelerators pin host memory", fix)
}

func hardNote(soft, hard uint64) string {
	if hard > soft {
		return " (" + amount(hard) + " when asked for)"
	}
	return ""
}

func amount(n uint64) string {
	if n == unlimited {
		return "any amount"
	}
	return config.Bytes(n).String()
}

func count(n uint64) string {
	if n == unlimited {
		return "any number"
	}
	return strconv.FormatUint(n, 10)
}

// checkFiles compares the limit of open files with the descriptors for all peers. The Go runtime
// raises the soft limit to the hard one.
func (d host) checkFiles() {
	soft, hard, err := d.sys.Limit(unix.RLIMIT_NOFILE)
	if err != nil {
		return
	}
	have := max(soft, hard)
	peers := d.settings.Peers()
	each := d.settings.Rails
	if d.wantsShm() && d.settings.Role != config.RoleScheduler {
		each = max(each, sharedFiles)
	}
	need := uint64(peers*each + ownFiles)
	if have < need {
		d.fail("open files", fmt.Sprintf("%s, and %d peers need %d", count(have), peers, need),
			fmt.Sprintf("ulimit -Hn %d before the start (systemd: LimitNOFILE=%d; docker: --ulimit nofile=%d), or set STEPVAN_RAILS lower", need, need, need))
		return
	}
	d.ok("open files", fmt.Sprintf("%s, of which %d peers need %d", count(have), peers, need))
}

// checkPIDs looks for room for the threads of a node.
func (d host) checkPIDs() {
	for _, dir := range d.sys.Machine.GroupDirs("pids") {
		most, ok := d.number(dir + "/pids.max")
		used, ok2 := d.number(dir + "/pids.current")
		if ok && ok2 && most-used < ownThreads {
			d.warn("threads", fmt.Sprintf("the control group has room for %d more, and a node may need %d", max(0, most-used), ownThreads),
				fmt.Sprintf("raise the limit by at least %d (docker: --pids-limit; systemd: TasksMax=; Kubernetes: podPidsLimit of the kubelet)", ownThreads))
			return
		}
	}
	if soft, _, err := d.sys.Limit(unix.RLIMIT_NPROC); err == nil && soft < ownThreads {
		d.warn("threads", fmt.Sprintf("the user may have %d, and a node may need %d", soft, ownThreads), "ulimit -u 4096 before the start (systemd: LimitNPROC=4096)")
		return
	}
	d.ok("threads", "there is room")
}
