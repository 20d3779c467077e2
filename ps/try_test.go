package ps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/ps"
)

// What a pair would use is found out without a cluster, and leaves nothing behind.
func TestTryPair(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, c := range map[string]struct {
		edit func(*ps.Settings)
		want string
	}{
		"tcp":               {only(config.VanTCP), "tcp (STEPVAN_VAN=tcp)"},
		"tcp, nothing set":  {func(s *ps.Settings) { *s = ps.DefaultSettings(); s.Van = config.VanTCP }, "tcp (STEPVAN_VAN=tcp)"},
		"tcp, this machine": {func(s *ps.Settings) { s.Van, s.Local = config.VanTCP, true }, "unix (STEPVAN_VAN=tcp)"},
		"odd ports and name": {func(s *ps.Settings) {
			s.Van, s.Port, s.NodeHost, s.RootURI = config.VanTCP, taken(t), "no.invalid", "no.invalid"
		}, "tcp (STEPVAN_VAN=tcp)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := alone(t, ps.RoleWorker)
			c.edit(&s)
			van, reason, err := reach.TryPair(limited(t), s)
			require.NoError(t, err)
			require.Equal(t, c.want, van+" ("+reason+")")
		})
	}
	open := filepath.Join(t.TempDir(), fmt.Sprintf("stepvan-%d", os.Getuid()))
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	t.Setenv("TMPDIR", filepath.Dir(open))
	s := alone(t, ps.RoleWorker)
	van, reason, err := reach.TryPair(limited(t), s)
	require.NoError(t, err)
	require.Equal(t, "tcp", van)
	require.Contains(t, reason, "shm: others than this user can enter "+open)
	s.Van = config.VanShm
	_, _, err = reach.TryPair(limited(t), s)
	require.ErrorContains(t, err, "STEPVAN_VAN")
	require.ErrorContains(t, err, "others than this user can enter "+open)
	s.Van = config.VanRDMA
	_, _, err = reach.TryPair(limited(t), s)
	require.ErrorContains(t, err, "STEPVAN_VAN")
}

// A server is not a scheduler, though it is a node.
func TestTryScheduler(t *testing.T) {
	scheduler, server := 0, port(t)
	c := start(t, overTCP, shape{
		workers: 1, servers: 1, opts: []ps.Option{ps.OnListen(func(port int) { scheduler = port })},
		each: map[string]func(*ps.Settings){"server 0": func(s *ps.Settings) { s.Port = server }},
	})
	s := alone(t, ps.RoleWorker)
	s.RootPort = scheduler
	require.NoError(t, reach.TryScheduler(limited(t), s))
	s.RootPort = server
	require.ErrorIs(t, reach.TryScheduler(limited(t), s), stepvan.ErrRemote)
	c.exercise(100, 5) // nobody minds
}
