package ps

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/reach"
)

// placement is where the threads and the memory of a node are: wherever the system puts them, or, with
// STEPMESH_BIND_CPU_CORE, on and near the cores of its device.
type placement struct {
	cores   affinity.Set
	nodes   []int // NUMA nodes of cores, where there are several
	library bool  // the process is somebody else's: only the threads of the node are bound
	release func() error
	warned  sync.Once
	log     zerolog.Logger
}

// bindCores binds what can be bound at the start.
func bindCores(s *Settings, log zerolog.Logger) (*placement, error) {
	p := &placement{library: isLibrary(), release: func() error { return nil }, log: log}
	if reach.WithoutCores(s) != "" { // reach.Check has warned of it
		return p, nil
	}
	p.cores = reach.Cores(s)
	if p.cores.Len() == 0 {
		return p, nil
	}
	p.findNodes()
	if !p.library {
		release, err := affinity.Claim(p.cores)
		if err != nil {
			return nil, fmt.Errorf("STEPMESH_BIND_CPU_CORE: %w", err)
		}
		p.release = release
	}
	log.Info().Stringer("cores", p.cores).Ints("numa_nodes", p.nodes).Msgf("%s bound", map[bool]string{false: "threads of the process are", true: "thread of the background driver is"}[p.library])
	return p, nil
}

// findNodes looks which NUMA nodes the cores belong to.
func (p *placement) findNodes() {
	var m affinity.Machine
	if m.Nodes() < 2 {
		return
	}
	nodes, err := m.NodesOf(p.cores)
	if err != nil {
		p.warn(err)
	}
	p.nodes = nodes
}

// near is for tensor.Options: memory of a bound node lies near its cores. nil when that is so anyway.
func (p *placement) near() func(make func()) {
	if len(p.nodes) == 0 {
		return nil
	}
	return func(make func()) {
		if err := affinity.Near(p.nodes, make); err != nil {
			p.warn(err)
		}
	}
}

func (p *placement) warn(err error) {
	p.warned.Do(func() { p.log.Warn().Err(err).Msg("STEPMESH_BIND_CPU_CORE: memory lies where the system puts it") })
}

// bind is for progress.Options: it binds the background driver's thread where the others are not ours to bind.
func (p *placement) bind() func() {
	if p.cores.Len() == 0 || !p.library {
		return nil
	}
	return func() {
		if err := affinity.Pin(p.cores); err != nil {
			p.log.Warn().Err(err).Msg("STEPMESH_BIND_CPU_CORE: the background driver runs where the system puts it")
		}
	}
}

// share is the processor time per second, in cores, that the process may use.
func (p *placement) share() float64 {
	quota := affinity.Machine{}.Quota()
	if n := p.programCores().Len(); n > 0 {
		return min(quota, float64(n))
	}
	return quota
}

// throttled returns a function that counts how often the quota was used up; nil without a quota.
func (p *placement) throttled() func() int64 { return affinity.Machine{}.Throttled() }

// programCores are the cores on which the program may run. The set is empty where the system does not tell.
func (p *placement) programCores() affinity.Set {
	if p.cores.Len() > 0 && !p.library {
		return p.cores
	}
	cores, _ := affinity.Home()
	return cores
}

// caches returns the sizes of the caches of a core on which the program may run.
func (p *placement) caches() affinity.Caches {
	cores := p.programCores().Cores()
	if len(cores) == 0 {
		return affinity.Caches{}
	}
	return affinity.Machine{}.Caches(cores[0])
}

// isLibrary reports whether this code was built into a library, whose process has threads of others.
func isLibrary() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-buildmode" && (s.Value == "c-shared" || s.Value == "c-archive")
	})
}
