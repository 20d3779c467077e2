package launch

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

func TestEachChildKnowsItsPlace(t *testing.T) {
	t.Setenv("DMLC_ROLE", "joint") // of another cluster
	t.Setenv("DMLC_PS_ROOT_URI", "elsewhere")
	t.Setenv("DMLC_NODE_RANK", "77")
	t.Setenv("STEPMESH_GPU", "5")
	t.Setenv("DMLC_PORT", "4711")
	t.Setenv("STEPVAN_LOG_LEVEL", "warn")
	t.Setenv("UNRELATED", "kept")
	t.Setenv("STEPVAN_NUM_PEER", "9")
	t.Setenv("DMLC_NODE_HOST", "here")
	plan := &Plan{Workers: 2, Servers: 3, Peers: 1, GroupSize: 2, Env: []string{"STEPVAN_VAN=tcp", "STEPVAN_LOG_LEVEL=debug", "OWN=1"}}
	env, err := newEnvironment(plan, 1234)
	require.NoError(t, err)
	var names []string
	for _, c := range children(env.settings) {
		environ, err := env.of(c)
		require.NoError(t, err)
		s, warnings, err := config.FromEnv(config.Lookup(environ), environ)
		require.NoError(t, err, "%v", c)
		require.Empty(t, warnings, "%v", c)
		require.Equal(t, c.Role, s.Role)
		require.Equal(t, "127.0.0.1:1234", s.RootAddr())
		require.Equal(t, []int{2, 3, 1, 2}, []int{s.NumWorker, s.NumServer, s.NumPeer, s.GroupSize})
		dialled := c.Role == stepvan.RoleServer || c.Role == stepvan.RolePeer
		require.Equal(t, dialled, s.NodeHost == "here", "%v", c)
		require.Equal(t, config.VanTCP, s.Van)
		require.Equal(t, config.LogDebug, s.LogLevel, "the plan's entries are on top")
		require.Zero(t, s.Port)
		if c.Role != stepvan.RoleScheduler {
			require.Equal(t, c.Rank, s.Rank())
			require.Equal(t, c.Device, s.Instance())
		}
		require.Subset(t, environ, []string{"UNRELATED=kept", "OWN=1", env.mark})
		names = append(names, c.String())
	}
	require.Equal(t, "scheduler server 0 server 1 server 2 server 3 server 4 server 5 peer 0 peer 1 worker 0 worker 1 worker 2 worker 3", strings.Join(names, " "))
}

func TestGroupSizeOfTheEnvironment(t *testing.T) {
	t.Setenv("DMLC_GROUP_SIZE", "4")
	env, err := newEnvironment(&Plan{Workers: 1, Servers: 1}, 1)
	require.NoError(t, err)
	require.Len(t, children(env.settings), 9)
	env, err = newEnvironment(&Plan{Workers: 1, Servers: 1, GroupSize: 1}, 1)
	require.NoError(t, err)
	require.Len(t, children(env.settings), 3)
}

func TestLogsThatPeopleReadAreText(t *testing.T) {
	for _, c := range []struct {
		prefix bool
		env    []string
		want   config.LogFormat
	}{{false, nil, config.LogAuto}, {true, nil, config.LogConsole}, {true, []string{"STEPVAN_LOG_FORMAT=json"}, config.LogJSON}} {
		env, err := newEnvironment(&Plan{Workers: 1, Prefix: c.prefix, Env: c.env}, 1)
		require.NoError(t, err)
		require.Equal(t, c.want, env.settings.LogFormat)
	}
}

func TestRunsInRunsHaveTheirOwnMark(t *testing.T) {
	t.Setenv(markName, "outer")
	env, err := newEnvironment(&Plan{Workers: 1}, 1)
	require.NoError(t, err)
	environ, err := env.of(Child{Role: stepvan.RoleScheduler})
	require.NoError(t, err)
	marks := slices.DeleteFunc(environ, func(e string) bool { return !strings.HasPrefix(e, markName) })
	require.Equal(t, []string{env.mark}, marks)
	for id, is := range map[string]bool{"outer": true, env.id: true, "out": false, "": false} {
		require.Equal(t, is, (&descendants{id: id}).hasMark([]byte(env.mark)), id)
	}
}

func TestMistakesInTheEnvironment(t *testing.T) {
	_, err := newEnvironment(&Plan{Workers: 1, GroupSize: -1, Env: []string{"STEPVAN_VAN=pigeon"}}, 1)
	var c *stepvan.ConfigError
	require.ErrorAs(t, err, &c)
	require.ErrorContains(t, err, "STEPVAN_VAN")
	require.ErrorContains(t, err, "DMLC_GROUP_SIZE")

	_, err = newEnvironment(&Plan{}, 1)
	require.ErrorContains(t, err, "DMLC_NUM_WORKER")

	_, err = newEnvironment(&Plan{Workers: 1, Env: []string{"STEPVAN_VAN=mem"}}, 1)
	require.ErrorContains(t, err, "set auto, shm or tcp")

	_, err = newEnvironment(&Plan{Workers: 1, Env: []string{"NOVALUE"}}, 1)
	require.True(t, errors.Is(err, stepvan.ErrInvalid))
}
