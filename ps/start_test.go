package ps_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// port returns a TCP port that nobody listens at.
func port(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

// taken returns a TCP port that somebody else listens at.
func taken(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// alone is the settings of one node whose cluster does not exist.
func alone(t testing.TB, role ps.Role) ps.Settings {
	s := ps.DefaultSettings()
	s.Role, s.NumWorker, s.NumServer = role, 1, 1
	s.RootURI, s.RootPort = "127.0.0.1", port(t)
	s.StartTimeout, s.LogLevel = bound, config.LogOff
	return s
}

// A mistake that one node can see by itself names its variable, at once.
func TestWrongSettings(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, c := range map[string]struct {
		role ps.Role
		edit func(*ps.Settings)
		want []string
	}{
		"no role":            {"", func(*ps.Settings) {}, []string{"DMLC_ROLE"}},
		"everything missing": {"worker", func(s *ps.Settings) { s.NumWorker, s.RootPort = 0, 0 }, []string{"DMLC_NUM_WORKER", "DMLC_PS_ROOT_PORT"}},
		"as StepMesh's scripts": {"worker", func(s *ps.Settings) {
			s.Van, s.BindCPUCore, s.CPUStartOffset = config.VanShmRDMA, true, 60_000
		}, []string{"which no machine has", "STEPVAN_BIND_CPU_CORE to auto"}},
		"mem between programs": {"worker", func(s *ps.Settings) { s.Van = config.VanMem }, []string{"STEPVAN_VAN", "one process"}},
		"accelerator of Hygon": {"worker", func(s *ps.Settings) { s.Backend = config.BackendDCU }, []string{"STEPMESH_BACKEND", "DCU", "CPU"}},
		"another accelerator":  {"worker", func(s *ps.Settings) { s.Backend = config.BackendKLX }, []string{"STEPMESH_BACKEND", "klx", "CPU"}},
		"lockstep by key":      {"worker", func(s *ps.Settings) { s.Routing = stepvan.ByKey }, []string{"STEPVAN_BATCH", "STEPVAN_ROUTING"}},
		"root port in use":     {"scheduler", func(s *ps.Settings) { s.RootPort = taken(t) }, []string{"DMLC_PS_ROOT_PORT", "another program"}},
		"data port in use":     {"server", func(s *ps.Settings) { s.Port = taken(t) }, []string{"DMLC_PORT", "another program"}},
		"no such interface":    {"server", func(s *ps.Settings) { s.Interface = "ethernot" }, []string{"DMLC_INTERFACE", "ethernot", "lo"}},
		"unknown scheduler":    {"server", func(s *ps.Settings) { s.RootURI = "no-such-host.invalid" }, []string{"DMLC_PS_ROOT_URI", "no-such-host"}},
		"unknown node host":    {"server", func(s *ps.Settings) { s.NodeHost = "no-such-host.invalid" }, []string{"DMLC_NODE_HOST", "no-such-host"}},
		"loopback for others":  {"server", func(s *ps.Settings) { s.RootURI, s.NodeHost = "192.0.2.1", "127.0.0.1" }, []string{"DMLC_NODE_HOST", "another machine"}},
		"loopback interface":   {"server", func(s *ps.Settings) { s.RootURI, s.Interface = "192.0.2.1", "lo" }, []string{"DMLC_INTERFACE", "another machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := alone(t, c.role)
			c.edit(&s)
			n, err := ps.Start(limited(t), s)
			require.Nil(t, n)
			var bad *stepvan.ConfigError
			require.ErrorAs(t, err, &bad)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

// journal collects log lines.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func TestSchedulerThatDoesNotAnswer(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			s := alone(t, ps.RoleWorker)
			s.StartTimeout = 200 * time.Millisecond
			_, err := ps.Start(limited(t), s, van.apply(&s)...)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			for _, w := range []string{"STEPVAN_START_TIMEOUT", "DMLC_PS_ROOT_URI", "scheduler"} {
				require.ErrorContains(t, err, w)
			}
			require.NotContains(t, err.Error(), "context deadline exceeded")
		})
	}
}

func TestCallerLosesPatience(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := ps.Start(ctx, alone(t, ps.RoleServer))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "STEPVAN_START_TIMEOUT")
}

// startSome starts nodes that need not all succeed and returns their errors in order.
func startSome(t *testing.T, all []ps.Settings, opts []ps.Option) []error {
	t.Helper()
	results := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			n, err := ps.Start(limited(t), s, opts...)
			if results[i] = err; err == nil {
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				_ = n.Stop(gone)
			}
		})
	}
	wg.Wait()
	return results
}

// parts are the settings of a cluster, with a port for the scheduler.
func (c shape) parts(t testing.TB, van vanKind) ([]ps.Settings, []ps.Option) {
	all, opts := c.settings(van)
	p := port(t)
	for i := range all {
		all[i].RootPort = p
	}
	return all, opts
}

// startUntilRefused starts a cluster that cannot become complete, with longer and longer start timeouts, until the
// scheduler has refused one of its nodes. On a slow machine the timeout may pass before that node comes. It returns the
// errors of the nodes and what they logged.
func startUntilRefused(t *testing.T, c shape, van vanKind, edit func([]ps.Settings)) (results []error, log string) {
	t.Helper()
	for timeout := 500 * time.Millisecond; timeout < bound; timeout *= 2 {
		c.edit = func(s *ps.Settings) { s.StartTimeout = timeout }
		all, opts := c.parts(t, van)
		edit(all)
		lines := &journal{}
		results = startSome(t, all, append(opts, ps.WithLogger(zerolog.New(lines))))
		log = lines.String()
		if slices.ContainsFunc(results, func(err error) bool { return errors.Is(err, stepvan.ErrRemote) }) {
			break
		}
	}
	return results, log
}

// Mistakes that only the scheduler can see are errors of the node that made them; everybody
// names the nodes that are missing.
func TestClustersThatDoNotComplete(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, van := range vans() {
		for name, c := range map[string]struct {
			edit func([]ps.Settings)
			at   int      // of the node with the mistake
			want []string // of its error
			all  []string // of everybody's error
		}{
			"disagreement": {
				edit: func(all []ps.Settings) { all[3].Batch = config.BatchAny },
				at:   3, want: []string{"STEPVAN_BATCH", "any", "lockstep"}, all: nil,
			},
			"group size": {
				edit: func(all []ps.Settings) {
					all[3].GroupSize = 2
					all[2].NodeRank = 1 // no other worker fills the place
				},
				at: 3, want: []string{"DMLC_GROUP_SIZE"},
			},
		} {
			t.Run(van.name+"/"+name, func(t *testing.T) {
				results, log := startUntilRefused(t, shape{workers: 2, servers: 1}, van, c.edit)
				for i, err := range results {
					require.Error(t, err, "node %d", i)
					require.Regexp(t, "^start[: ]", err.Error())
					require.NotRegexp(t, "start: start", err.Error(), "said once")
				}
				if c.at >= 0 {
					require.ErrorIs(t, results[c.at], stepvan.ErrRemote)
					for _, w := range c.want {
						require.ErrorContains(t, results[c.at], w)
						require.Contains(t, log, w)
					}
				}
				for _, w := range c.all {
					require.ErrorContains(t, results[0], w)
				}
			})
		}
	}
}

func TestTwoNodesWithOneRank(t *testing.T) {
	results, log := startUntilRefused(t, shape{workers: 2, servers: 1}, overTCP, func(all []ps.Settings) { all[3].NodeRank = 0 })
	refused := results[2]
	if !errors.Is(refused, stepvan.ErrRemote) {
		refused = results[3] // whichever came second
	}
	require.ErrorIs(t, refused, stepvan.ErrRemote)
	require.ErrorContains(t, refused, "worker 0")
	require.Contains(t, log, "worker 0")
	require.ErrorContains(t, results[0], "worker 1", "the scheduler says who is missing")
}

func TestNothingIsLeftOfAFailedStart(t *testing.T) {
	s := alone(t, ps.RoleScheduler)
	s.StartTimeout = 100 * time.Millisecond
	for range 2 { // the port is free again
		_, err := ps.Start(limited(t), s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "worker")
		require.Regexp(t, "^start: worker 0 [^:]*: not registered yet after 0.1 s", err.Error())
		require.NotContains(t, err.Error(), "context deadline exceeded")
	}
	goleak.VerifyNone(t)
}

// A server tells workers an address by which they reach it.
func TestAdvertisedAddress(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*ps.Settings)
		want string
	}{
		"on the route":  {func(*ps.Settings) {}, "tcp://127.0.0.1:"},
		"by interface":  {func(s *ps.Settings) { s.Interface = "lo" }, "tcp://127.0.0.1:"},
		"by host name":  {func(s *ps.Settings) { s.NodeHost = "localhost" }, "tcp://localhost:"},
		"by the device": {func(s *ps.Settings) { s.Interface = "auto" }, "tcp://127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := start(t, overTCP, shape{workers: 1, servers: 1, edit: c.edit})
			peers := cl.workers[0].Peers()
			require.Len(t, peers, 1)
			require.Contains(t, peers[0].Addresses[0], c.want)
			cl.exercise(100, 2)
		})
	}
}

func TestDataPort(t *testing.T) {
	p := port(t)
	cl := start(t, overTCP, shape{workers: 1, servers: 1, edit: func(s *ps.Settings) { s.Port, s.NumPorts = p, 1 }})
	require.Equal(t, []string{"tcp://127.0.0.1:" + strconv.Itoa(p)}, cl.workers[0].Peers()[0].Addresses)
	cl.exercise(100, 2)
}
