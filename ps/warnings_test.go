package ps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/ps"
)

// A setting that is accepted and changes nothing is a warning that names it.
func TestSettingsWithoutEffect(t *testing.T) {
	network := func(s *ps.Settings) { s.Interface, s.NodeHost, s.Port, s.NumPorts = "eth0", "10.0.0.7", 9000, 2 }
	all := []string{"DMLC_INTERFACE", "DMLC_NODE_HOST", "DMLC_PORT"}
	for name, c := range map[string]struct {
		role ps.Role
		edit func(*ps.Settings)
		want []string
	}{
		"nothing odd":           {ps.RoleServer, func(*ps.Settings) {}, nil},
		"a server's network":    {ps.RoleServer, network, nil},
		"a joint node's":        {ps.RoleJoint, network, nil},
		"a worker's":            {ps.RoleWorker, network, all[1:]},
		"a worker's, over TCP":  {ps.RoleWorker, func(s *ps.Settings) { network(s); s.Van = config.VanTCP }, all},
		"the scheduler's":       {ps.RoleScheduler, network, all},
		"on this machine only":  {ps.RoleServer, func(s *ps.Settings) { network(s); s.Local = true }, all},
		"over shared memory":    {ps.RoleServer, func(s *ps.Settings) { network(s); s.Van = config.VanShm }, all},
		"the interface of RDMA": {ps.RoleWorker, func(s *ps.Settings) { s.Interface = "auto" }, nil},
		"ports without a first": {ps.RoleServer, func(s *ps.Settings) { s.NumPorts = 3 }, []string{"DMLC_NUM_PORTS"}},
		"what no van does":      {ps.RoleWorker, func(s *ps.Settings) { s.Resend, s.DropMsg = true, 5 }, []string{"PS_RESEND", "PS_DROP_MSG"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := alone(t, c.role)
			c.edit(&s)
			warnings, err := reach.Check(&s, false, nil)
			require.NoError(t, err)
			var got []string
			for _, w := range warnings {
				got = append(got, w.Key)
				require.Contains(t, w.Reason, "no effect")
			}
			require.Equal(t, c.want, got)
		})
	}
}
