package stress

import (
	"testing"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// vanKind is a transport that clusters run over.
type vanKind struct {
	name    string
	apply   func(*ps.Settings)
	network func() *ps.Network // for nodes of one process; nil where processes can meet
}

var (
	overTCP  = vanKind{name: "tcp", apply: func(s *ps.Settings) { s.Van = config.VanTCP }}
	overUnix = vanKind{name: "unix", apply: func(s *ps.Settings) { s.Van, s.Local = config.VanTCP, true }}
	overShm  = vanKind{name: "shm", apply: func(s *ps.Settings) { s.Van = config.VanShm }}
	overMem  = vanKind{
		name: "mem", apply: func(s *ps.Settings) { s.Van = config.VanMem },
		network: func() *ps.Network { return ps.NewNetwork() },
	}
)

// vansOfMachines join processes.
func vansOfMachines() []vanKind { return []vanKind{overTCP, overUnix, overShm} }

// vans are all.
func vans() []vanKind { return append(vansOfMachines(), overMem) }

// base is the settings that all nodes share. Silence does not count as a death in these tests, which keep more
// processes busy than there are cores. They notice a death by other means.
func base(van vanKind, workers, servers int) ps.Settings {
	s := ps.DefaultSettings()
	s.NumWorker, s.NumServer = workers, servers
	s.RootURI, s.RootPort = "127.0.0.1", 0
	s.StartTimeout, s.HeartbeatTimeout = bound, bound
	s.LogLevel = config.LogOff
	van.apply(&s)
	return s
}

// each runs a test for every van.
func each(t *testing.T, all []vanKind, f func(t *testing.T, van vanKind)) {
	for _, van := range all {
		t.Run(van.name, func(t *testing.T) { f(t, van) })
	}
}
