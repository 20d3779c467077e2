package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/errs"
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
	var wrong *errs.ConfigError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "STEPMESH_CPU_START_OFFSET", wrong.Key)
	require.Equal(t, "8000", wrong.Value)
	require.ErrorContains(t, err, "8000-8004")
	s.Role = ps.RoleScheduler
	_, err = ps.Check(s)
	require.NoError(t, err, "the scheduler is not bound")
}
