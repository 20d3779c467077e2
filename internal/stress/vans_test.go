package stress

import (
	"os"
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
	overRDMA = vanKind{name: "rdma", apply: func(s *ps.Settings) { s.Van = config.VanRDMA }}
	overMem  = vanKind{
		name: "mem", apply: func(s *ps.Settings) { s.Van = config.VanMem },
		network: func() *ps.Network { return ps.NewNetwork() },
	}
)

// withRDMA reports whether this is a machine with software RDMA (scripts/test-rdma.sh). RDMA is all that it is for.
func withRDMA() bool { return os.Getenv("STEPVAN_TEST_REQUIRE_RDMA") != "" }

// vansOfMachines join processes.
func vansOfMachines() []vanKind {
	if withRDMA() {
		return []vanKind{overRDMA}
	}
	return []vanKind{overTCP, overUnix, overShm}
}

// vans are all.
func vans() []vanKind {
	if withRDMA() {
		return vansOfMachines()
	}
	return append(vansOfMachines(), overMem)
}

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
