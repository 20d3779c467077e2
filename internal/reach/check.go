package reach

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/rdma/device"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// Check tells what a node refuses of settings in this build and on this machine, all of it, and which settings it
// accepts without effect. It opens nothing. inProcess says that the program has given the node a network within the
// process. What is said of a setting begins with the variable that the user has set: lookup answers like os.LookupEnv
// for the environment of the settings. It is nil where a program has set them.
func Check(s *config.Settings, inProcess bool, lookup func(string) (string, bool)) ([]config.Warning, error) {
	return ineffective(s, lookup), refused(s, inProcess, lookup)
}

// refused is what this build and this machine cannot do.
func refused(s *config.Settings, inProcess bool, lookup func(string) (string, bool)) error {
	var all []error
	refuse := func(name, reason string) {
		key, value := s.Written(lookup, name)
		all = append(all, &stepvan.ConfigError{Key: key, Value: value, Reason: reason})
	}
	if s.Van == config.VanMem && !inProcess {
		refuse(vanName, "mem works within one process only, whose nodes are started with ps.WithNetwork: set auto, shm or tcp")
	}
	if s.Backend != config.BackendCPU && s.Backend != config.BackendGPU {
		refuse("STEPMESH_BACKEND", "this build has no driver for its devices: set CPU, or GPU for those of NVIDIA")
	}
	return errors.Join(append(all, checkCores(s, lookup))...)
}

// ineffective lists settings that are accepted and have no effect.
func ineffective(s *config.Settings, lookup func(string) (string, bool)) []config.Warning {
	var out []config.Warning
	add := func(on bool, key, reason string) {
		if on {
			out = append(out, config.Warning{Key: key, Reason: reason})
		}
	}
	add(s.Resend, "PS_RESEND", "has no effect: the vans of this build deliver every message or report the loss of the peer")
	add(s.DropMsg > 0, "PS_DROP_MSG", "has no effect: the vans of this build lose no messages")
	add(s.Rails > tcpvan.MaxRails, "STEPVAN_RAILS", fmt.Sprintf("%d connections per peer are the most that the tcp van makes", tcpvan.MaxRails))
	add(s.SplitQPLag && s.RDMAQPs <= 1, "STEPMESH_SPLIT_QP_LAG", "has no effect with one queue pair per peer: set STEPVAN_RDMA_QPS=2")
	out = append(out, ineffectiveAddresses(s)...)
	if why := WithoutCores(s); why != "" {
		key, value := s.Written(lookup, "STEPVAN_BIND_CPU_CORE", "STEPMESH_BIND_CPU_CORE")
		out = append(out, config.Warning{Key: key, Value: value, Reason: why + ": nothing is bound. STEPVAN_BIND_CPU_CORE=off says that this is wanted"})
	}
	return out
}

// ineffectiveAddresses lists settings about the address of a server or a peer, where nobody uses it.
func ineffectiveAddresses(s *config.Settings) []config.Warning {
	reason := whyNotDialled(s)
	var out []config.Warning
	add := func(on bool, key, reason string) {
		if on && reason != "" {
			out = append(out, config.Warning{Key: key, Reason: reason})
		}
	}
	add(s.Interface != "" && s.Interface != device.Auto && !MayUseRDMA(s), netDevice, reason)
	add(s.NodeHost != "", nodeHost, reason)
	add(s.Port != 0, dataPort, reason)
	add(s.NumPorts > 1 && s.Port == 0, "DMLC_NUM_PORTS", "has no effect without DMLC_PORT, the first of them")
	return out
}

// Dialled reports whether others dial a node with these settings over a network.
func Dialled(s *config.Settings) bool { return whyNotDialled(s) == "" }

func whyNotDialled(s *config.Settings) string {
	switch {
	case s.Role == stepvan.RoleWorker || s.Role == stepvan.RoleScheduler:
		return "has no effect on a " + string(s.Role) + ": it is for servers and peers, which others dial"
	case s.Local:
		return "has no effect with DMLC_LOCAL=1: no network is used"
	case s.Van == config.VanShm || s.Van == config.VanMem:
		return "has no effect with STEPVAN_VAN=" + string(s.Van) + ": no network carries tensors"
	}
	return ""
}

// Cores are those that the threads of a node are bound to: none when nothing is to be bound.
func Cores(s *config.Settings) affinity.Set {
	if wanted, _ := s.Binds(); !wanted {
		return affinity.Set{}
	}
	return affinity.Layout{PerSocket: s.CPUCoresPerSocket, PerDevice: s.CPUCoresPerGPU, Start: s.CPUStartOffset}.Cores(s.GPU)
}

// missingCores says which cores the process cannot have: "" when it can have all that it is to be bound to.
func missingCores(s *config.Settings) string {
	wanted, _ := s.Binds()
	if !wanted {
		return ""
	}
	cores := Cores(s)
	home, err := affinity.Home()
	switch {
	case err != nil:
		return err.Error()
	case cores.Len() == 0:
		return fmt.Sprintf("device %d would get cores from %d on, which no machine has, and this process may use %v", s.GPU, affinity.MaxCores, home)
	case cores.Minus(home).Len() > 0:
		return fmt.Sprintf("device %d would get the cores %v, and this process may use %v", s.GPU, cores, home)
	}
	return ""
}

// WithoutCores says which cores are missing where the node starts without them, else "".
func WithoutCores(s *config.Settings) string {
	if _, must := s.Binds(); must {
		return ""
	}
	return missingCores(s)
}

// checkCores refuses settings that demand cores which the process cannot have.
func checkCores(s *config.Settings, lookup func(string) (string, bool)) error {
	why := missingCores(s)
	if _, must := s.Binds(); !must || why == "" {
		return nil
	}
	key, value := s.Written(lookup, "STEPMESH_CPU_START_OFFSET", "STEPMESH_CPU_CORES_PER_GPU", "STEPMESH_CPU_CORES_PER_SOCKET", "STEPVAN_BIND_CPU_CORE", "STEPMESH_BIND_CPU_CORE")
	return &stepvan.ConfigError{Key: key, Value: value, Reason: fmt.Sprintf(
		"%s: set STEPMESH_CPU_START_OFFSET (%d), STEPMESH_CPU_CORES_PER_GPU (%d) and STEPMESH_CPU_CORES_PER_SOCKET (%d) so that they fit, or STEPVAN_BIND_CPU_CORE to auto, which continues without the cores, or off",
		why, s.CPUStartOffset, s.CPUCoresPerGPU, s.CPUCoresPerSocket)}
}
