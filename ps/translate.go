package ps

import (
	"errors"
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/van/tcpvan"
)

// The settings in the words of the layers.

func limitsOf(s *Settings) wire.Limits {
	return wire.Limits{Meta: uint32(s.MaxHeaderBytes), Message: uint64(s.MaxMessageBytes), Tensors: uint32(s.MaxTensors)}
}

func progressOf(s *Settings, p *placement) progress.Options {
	o := progress.Options{Cores: p.share(), Bind: p.bind()}
	switch s.Progress {
	case config.ProgressSpin:
		o.Mode = progress.Spin
	case config.ProgressPark:
		o.Mode = progress.Park
	}
	return o
}

func hugePagesOf(s *Settings) tensor.HugePages {
	switch s.Hugepages {
	case config.HugepagesOn:
		return tensor.HugePagesRequired
	case config.HugepagesOff:
		return tensor.HugePagesOff
	}
	return tensor.HugePagesAuto
}

func sharedOf(s *Settings) []postoffice.Setting {
	pairs := s.Shared()
	out := make([]postoffice.Setting, len(pairs))
	for i, p := range pairs {
		out[i] = postoffice.Setting(p)
	}
	return out
}

func ringOf(s *Settings) *trace.Ring {
	if s.TraceEvents == 0 {
		return nil
	}
	return trace.NewRing(s.TraceEvents)
}

// Check tells what Start would refuse of settings in this build, and what it would accept
// without effect. It opens nothing.
func Check(s Settings) ([]config.Warning, error) { return CheckFrom(s, nil) }

// CheckFrom is Check for settings that lookup, which answers like os.LookupEnv, has given: what is said of a setting
// begins with the variable that the user has set.
func CheckFrom(s Settings, lookup func(string) (string, bool)) ([]config.Warning, error) {
	o := options{written: lookup}
	return mild(&s, &o), checkBuild(&s, &o)
}

// checkBuild refuses what this build cannot do, all of it.
func checkBuild(s *Settings, o *options) error {
	var all []error
	refuse := func(name, reason string) {
		key, value := s.Written(o.written, name)
		all = append(all, &stepvan.ConfigError{Key: key, Value: value, Reason: reason})
	}
	if s.Van == config.VanRDMA {
		refuse(vanName, "RDMA is not in this build: set STEPVAN_VAN to auto, shm or tcp, which overrules DMLC_ENABLE_RDMA and DMLC_PS_VAN_TYPE")
	}
	if s.Van == config.VanMem && o.network == nil {
		refuse(vanName, "mem works within one process only, whose nodes are started with ps.WithNetwork: set auto, shm or tcp")
	}
	if s.Backend != config.BackendCPU {
		refuse("STEPMESH_BACKEND", "not in this build: set CPU")
	}
	return errors.Join(append(all, checkCores(s, o))...)
}

// mild lists settings that are accepted and have no effect.
func mild(s *Settings, o *options) []config.Warning {
	var out []config.Warning
	add := func(on bool, key, reason string) {
		if on {
			out = append(out, config.Warning{Key: key, Reason: reason})
		}
	}
	add(s.Resend, "PS_RESEND", "has no effect: the vans of this build deliver every message or report the loss of the peer")
	add(s.DropMsg > 0, "PS_DROP_MSG", "has no effect: the vans of this build lose no messages")
	add(s.Rails > tcpvan.MaxRails, "STEPVAN_RAILS", fmt.Sprintf("%d connections per peer are the most that the tcp van makes", tcpvan.MaxRails))
	add(s.SplitQPLag, "STEPMESH_SPLIT_QP_LAG", "has no effect: there is no RDMA in this build")
	out = append(out, unreached(s)...)
	if why := withoutCores(s); why != "" {
		key, value := s.Written(o.written, "STEPVAN_BIND_CPU_CORE", "STEPMESH_BIND_CPU_CORE")
		out = append(out, config.Warning{Key: key, Value: value, Reason: why + ": nothing is bound. STEPVAN_BIND_CPU_CORE=off says that this is wanted"})
	}
	return out
}

// unreached lists settings that say how workers reach a server over a network, where they do not.
func unreached(s *Settings) []config.Warning {
	reason := ""
	switch {
	case s.Role == RoleWorker || s.Role == RoleScheduler:
		reason = "has no effect on a " + string(s.Role) + ": it is for servers, which workers dial"
	case s.Local:
		reason = "has no effect with DMLC_LOCAL=1: no network is used"
	case s.Van == config.VanShm || s.Van == config.VanMem:
		reason = "has no effect with STEPVAN_VAN=" + string(s.Van) + ": no network carries tensors"
	}
	var out []config.Warning
	add := func(on bool, key, reason string) {
		if on && reason != "" {
			out = append(out, config.Warning{Key: key, Reason: reason})
		}
	}
	add(s.Interface != "" && s.Interface != "auto", netDevice, reason)
	add(s.NodeHost != "", nodeHost, reason)
	add(s.Port != 0, dataPort, reason)
	add(s.NumPorts > 1 && s.Port == 0, "DMLC_NUM_PORTS", "has no effect without DMLC_PORT, the first of them")
	return out
}

// inPlaceOf is what the worker takes: there 0 stands for its default, and a negative size for none.
func inPlaceOf(s *Settings) int {
	if s.InPlaceBytes == 0 {
		return -1
	}
	return int(s.InPlaceBytes)
}
