package reach

import (
	"fmt"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
)

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
