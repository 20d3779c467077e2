package doctor

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

const (
	// ownFiles are the descriptors of a node without peers: log, epoll, memory files, listeners.
	ownFiles = 64
	// sharedFiles are the descriptors for a peer with which memory is shared: socket, process, ring.
	sharedFiles = 3
	// ownThreads are the threads of a node at most: the runtime's, the background driver's, and spare ones.
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

const moreMemlock = "ulimit -l unlimited before the start (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1; Kubernetes: of the container runtime; all users: /etc/security/limits.conf)"

func (d host) checkMemlock() {
	soft, hard, err := d.sys.Limit(unix.RLIMIT_MEMLOCK)
	if err != nil {
		return
	}
	found := "may pin " + amount(soft)
	if enough := soft == unlimited || soft >= uint64(pinned); enough || d.settings.Backend != config.BackendGPU {
		d.ok("memlock", found)
		return
	}
	d.warn("memlock", found+hardNote(soft, hard)+", and accelerators pin host memory", moreMemlock)
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
	if d.wantsShm() && d.settings.Role != stepvan.RoleScheduler {
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

// checkCores compares cores and processes: a waiting call that spins while its
// peer has no core costs milliseconds.
func (d host) checkCores() {
	s := d.settings
	cores, processes := d.sys.CPUs(), d.processes()
	found := fmt.Sprintf("%d for %d processes of this cluster", cores, processes)
	switch {
	case processes <= cores:
		d.ok("cores", found)
	case s.Progress == config.ProgressSpin:
		d.fail("cores", found+", and STEPVAN_PROGRESS=spin needs one each", "set STEPVAN_PROGRESS=auto, or start fewer processes here")
	default:
		d.warn("cores", found+", which share them", "set STEPVAN_PROGRESS=park for steady times, or start fewer processes here")
	}
	d.checkQuota(cores)
}

// processes is the number of processes of the cluster on this machine, according to the settings.
func (d host) processes() int {
	s := d.settings
	switch {
	case s.Local || isLoopback(s.RootURI):
		if s.Role == stepvan.RoleJoint {
			return 2
		}
		return s.Instances() + 1
	case s.Role == stepvan.RoleWorker || s.Role == stepvan.RoleServer || s.Role == stepvan.RolePeer:
		return s.GroupSize
	}
	return 1
}

// checkQuota finds a control group that allows less processor time than the machine has cores. The
// kernel stops a process that has used up its time for the rest of the period.
func (d host) checkQuota(cores int) {
	quota := d.sys.Machine.Quota()
	if quota >= float64(cores) {
		return
	}
	found := fmt.Sprintf("the control group allows the time of %.3g of %d cores", quota, cores)
	fix := fmt.Sprintf("raise the limit to %d (docker: --cpus=%d; Kubernetes: limits.cpu; systemd: CPUQuota=%d%%), or set STEPVAN_PROGRESS=park", cores, cores, cores*100)
	if d.settings.Progress == config.ProgressSpin {
		d.fail("core quota", found+", which spinning uses up", fix)
		return
	}
	d.warn("core quota", found, fix)
}

// isLoopback reports whether a host of a setting is this machine for everybody.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkClock finds clock sources that are slow to read. Each request takes eight timestamps.
func (d host) checkClock() {
	const dir = "sys/devices/system/clocksource/clocksource0/"
	source := d.text(dir + "current_clocksource")
	slow := source == "hpet" || source == "acpi_pm" || source == "jiffies" || source == "pit" || source == "refined-jiffies"
	switch {
	case source == "":
	case slow:
		d.warn("clock", source+" takes microseconds to read, or is coarse", "echo "+better(d.text(dir+"available_clocksource"))+" > /"+dir+"current_clocksource; if the kernel refuses it, boot with tsc=reliable, or set STEPVAN_TRACE_EVENTS=0")
	default:
		d.ok("clock", source)
	}
}

// better is the available clock source that is best, tsc when none is known.
func better(available string) string {
	for _, want := range []string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"} {
		for have := range strings.FieldsSeq(available) {
			if have == want {
				return want
			}
		}
	}
	return "tsc"
}
