package doctor

import (
	"fmt"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
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
	d.checkPinning()
}

// processes is the number of processes of the cluster on this machine, according to the settings.
func (d host) processes() int {
	s := d.settings
	switch {
	case s.Local || loopback(s.RootURI) || s.RootURI == "localhost":
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
	quota := d.machine().Quota()
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

// checkPinning finds cores to bind to that the machine does not have.
func (d host) checkPinning() {
	s := d.settings
	wanted, must := s.Binds()
	if !wanted || d.pinning {
		return
	}
	cores := affinity.Layout{PerSocket: s.CPUCoresPerSocket, PerDevice: s.CPUCoresPerGPU, Start: s.CPUStartOffset}.Cores(s.GPU)
	if missing := cores.Minus(affinity.Range(0, d.sys.CPUs())); missing.Len() > 0 {
		found, fix := fmt.Sprintf("device %d gets the cores %v, and there are %d", s.GPU, cores, d.sys.CPUs()), "set STEPMESH_CPU_START_OFFSET=0, a smaller STEPMESH_CPU_CORES_PER_GPU, or STEPVAN_BIND_CPU_CORE=off"
		if must {
			d.fail("pinning", found, fix+", or STEPVAN_BIND_CPU_CORE=auto, which starts without the cores")
			return
		}
		d.warn("pinning", found+": nothing is bound", fix)
		return
	}
	d.ok("pinning", fmt.Sprintf("cores %v", cores))
}
