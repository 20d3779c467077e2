package ps_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/ps"
)

// Nodes with STEPMESH_BIND_CPU_CORE run on the cores of their devices, and give them back.
func TestBoundNodes(t *testing.T) {
	home, err := affinity.Home()
	require.NoError(t, err)
	core := home.Cores()[home.Len()-1]
	c := start(t, overTCP, shape{workers: 1, servers: 1, edit: func(s *ps.Settings) {
		s.BindCPUCore, s.CPUStartOffset, s.CPUCoresPerGPU = true, core, 1
	}})
	bound, err := affinity.Allowed()
	require.NoError(t, err)
	require.Equal(t, affinity.Range(core, 1).String(), bound.String())
	c.exercise(100, 5)
	after, err := affinity.Allowed()
	require.NoError(t, err)
	require.Equal(t, home.String(), after.String())
}

func TestCoresThatAreNotThere(t *testing.T) {
	s := alone(t, ps.RoleWorker)
	s.BindCPUCore, s.CPUStartOffset = true, 8000
	_, err := ps.Start(limited(t), s)
	var wrong *stepvan.ConfigError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "STEPMESH_CPU_START_OFFSET", wrong.Key)
	require.Equal(t, "8000", wrong.Value)
	require.ErrorContains(t, err, "8000-8004")
	s.Role = ps.RoleScheduler
	_, err = reach.Check(&s, false, nil)
	require.NoError(t, err, "the scheduler is not bound")
}

// environ is the environment of a worker, with words NAME=value on top.
func environ(t *testing.T, words ...string) []string {
	t.Helper()
	s := alone(t, ps.RoleWorker)
	s.StartTimeout = 100 * time.Millisecond // nobody is there
	return append(s.Env(), words...)
}

// What is refused begins with the variable that the user has set, and names the one that overrules it.
func TestRefusedVariables(t *testing.T) {
	for words, want := range map[string][]string{
		"DMLC_ENABLE_RDMA=ibverbs STEPMESH_BAKCEND=dcu":                                                                                    {`STEPMESH_BAKCEND="dcu": this build has no driver`},
		"STEPMESH_BIND_CPU_CORE=1 STEPMESH_CPU_START_OFFSET=8000":                                                                          {`STEPMESH_CPU_START_OFFSET="8000": device 0 would get the cores 8000-8004`, "STEPVAN_BIND_CPU_CORE to auto"},
		"STEPMESH_BIND_CPU_CORE=1 STEPMESH_CPU_CORES_PER_SOCKET=16000":                                                                     {"STEPMESH_CPU_CORES_PER_SOCKET=\"16000\": device 0 would get"},
		"STEPVAN_BIND_CPU_CORE=on STEPMESH_GPU=1 DMLC_RANK_OFFSET=-1 STEPMESH_CPU_CORES_PER_GPU=40000 STEPMESH_CPU_CORES_PER_SOCKET=40000": {`STEPMESH_CPU_CORES_PER_GPU="40000": device 1 would get cores from 8192 on, which no machine has`},
	} {
		_, err := ps.StartFrom(limited(t), environ(t, strings.Fields(words)...))
		var wrong *stepvan.ConfigError
		if words == "STEPMESH_BIND_CPU_CORE=1 STEPMESH_CPU_CORES_PER_SOCKET=16000" && runtime.NumCPU() >= 15 {
			continue // device 0 has the first cores, whatever a socket has
		}
		require.ErrorAs(t, err, &wrong, words)
		for i, text := range want {
			require.ErrorContains(t, err, text, words)
			if i == 0 {
				require.True(t, strings.HasPrefix(err.Error(), text), "%v", err)
			}
		}
	}
}

// Cores that nobody has asked for by their numbers, or that STEPVAN_BIND_CPU_CORE=auto overrules, are gone without.
func TestMissingCoresThatNobodyHasChosen(t *testing.T) {
	home, err := affinity.Home()
	require.NoError(t, err)
	for _, words := range []string{
		"STEPMESH_BIND_CPU_CORE=1 STEPVAN_BIND_CPU_CORE=auto STEPMESH_CPU_START_OFFSET=8000",
		"STEPVAN_BIND_CPU_CORE=auto STEPMESH_CPU_START_OFFSET=8000",
		"STEPMESH_BIND_CPU_CORE=1 STEPMESH_GPU=7 DMLC_RANK_OFFSET=-7", // the cores of the last device of eight
		"DMLC_ENABLE_RDMA=ibverbs STEPVAN_VAN=auto STEPMESH_BIND_CPU_CORE=1 STEPMESH_GPU=7 DMLC_RANK_OFFSET=-7",
	} {
		if !strings.Contains(words, "8000") && home.Len() > 40 {
			continue // there are so many
		}
		log := &journal{}
		_, err := ps.StartFrom(limited(t), environ(t, strings.Fields(words)...), ps.WithLogger(zerolog.New(log)))
		require.ErrorContains(t, err, "STEPVAN_START_TIMEOUT", words) // so far it came
		require.Contains(t, log.String(), "nothing is bound", words)
		allowed, err := affinity.Allowed()
		require.NoError(t, err)
		require.Equal(t, home.String(), allowed.String())
	}
	log := &journal{}
	_, err = ps.StartFrom(limited(t), environ(t, "STEPMESH_BIND_CPU_CORE=1", "STEPVAN_BIND_CPU_CORE=off", "STEPMESH_CPU_START_OFFSET=8000"), ps.WithLogger(zerolog.New(log)))
	require.ErrorContains(t, err, "STEPVAN_START_TIMEOUT")
	require.NotContains(t, log.String(), "bound")
}
