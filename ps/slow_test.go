package ps_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// patient is for tests that keep more processes busy than there are cores: silence does not mean death there.
func patient(s *ps.Settings) { s.HeartbeatTimeout, s.StartTimeout = bound, 2*bound }

// soakLimit bounds a soak test.
func soakLimit(t testing.TB) context.Context {
	limit := 2 * bound
	if *long {
		limit = 20 * bound
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// An instance that has nothing to do for many heartbeats is not lost, and neither is a slow one.
func TestIdleAndSlowAreNoErrors(t *testing.T) {
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 1, servers: 1, edit: func(s *ps.Settings) {
				s.HeartbeatInterval, s.HeartbeatTimeout = 20*time.Millisecond, 400*time.Millisecond
			}})
			idle, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := c.servers[0].GetBatch(idle, ps.DefaultPolicy)
			require.ErrorIs(t, err, context.DeadlineExceeded)

			cl, err := newClient(c.workers[0], 0, 100)
			require.NoError(t, err)
			h, err := cl.begin()
			require.NoError(t, err)
			err = h.WaitFor(500 * time.Millisecond) // the server takes its time
			require.ErrorIs(t, err, context.DeadlineExceeded)
			served := make(chan error, 1)
			go func() { served <- serve(limited(t), c.servers[0]) }()
			require.NoError(t, h.Wait(limited(t)), "it can be waited for again")
			require.NoError(t, cl.check([]ps.Rank{0}))
			each(t, c.all, func(n *ps.Node) error { return n.Stop(limited(t)) })
			require.NoError(t, <-served)
		})
	}
}

// A process that stands still is dead for the others once PS_HEARTBEAT_TIMEOUT has passed, though
// its connections are open.
func TestSilentProcesses(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(*ps.Settings)
		victim func(*family) *process
		learns func(*family) []*process
		want   string
	}{
		{"worker", func(*ps.Settings) {}, func(f *family) *process { return f.workers[1] },
			func(f *family) []*process { return append(f.servers, f.workers[0]) }, "worker 1"},
		{"server", func(*ps.Settings) {}, func(f *family) *process { return f.servers[0] },
			func(f *family) []*process { return append(f.workers, f.servers[1]) }, "server 0"},
		{"scheduler", func(*ps.Settings) {}, func(f *family) *process { return f.scheduler },
			func(f *family) []*process { return append(f.workers, f.servers...) }, "scheduler"},
		{"server, any batch", func(s *ps.Settings) { s.Batch = config.BatchAny }, func(f *family) *process { return f.servers[0] },
			func(f *family) []*process { return f.workers }, "server 0"},
	} {
		for _, van := range []vanKind{overTCP, overShm} {
			t.Run(van.name+"/"+c.name, func(t *testing.T) {
				f := raise(t, van, shape{workers: 2, servers: 2, edit: func(s *ps.Settings) {
					s.HeartbeatInterval, s.HeartbeatTimeout = 100*time.Millisecond, time.Second
					c.edit(s)
				}}, "serve", "work", 1<<30)
				require.NoError(t, c.victim(f).cmd.Process.Signal(syscall.SIGSTOP))
				for _, p := range c.learns(f) {
					_, err := p.expect(limited(t), "nothing")
					require.ErrorContains(t, err, "error:")
					require.ErrorContains(t, err, c.want)
				}
			})
		}
	}
}
