package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/stepvan/stepvan/config"
)

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
		if s.Role == config.RoleJoint {
			return 2
		}
		return s.NumWorkerInstances() + s.NumServerInstances() + 1
	case s.Role == config.RoleWorker || s.Role == config.RoleServer:
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
