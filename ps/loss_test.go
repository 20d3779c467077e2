package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// lossBound is how long everybody may take to learn of a death.
const lossBound = 2 * time.Second

// A peer that is killed fails what names it. The lock-step of workers and servers continues, and so do the other peers.
func TestKilledPeers(t *testing.T) {
	for _, van := range []vanKind{overTCP, overShm} {
		t.Run(van.name, func(t *testing.T) {
			f := raise(t, van, shape{workers: 2, servers: 2, peers: 3, peer: "outlive"}, "serve", "work", 300)
			require.NoError(t, f.peers[1].cmd.Process.Kill())
			ctx, cancel := context.WithTimeout(context.Background(), lossBound)
			defer cancel()
			for _, p := range []*process{f.peers[0], f.peers[2]} {
				err, failed := p.expect(ctx, "lost")
				require.NoError(t, failed)
				require.Contains(t, err, "peer 1")
			}
			f.all(limited(t), "done", f.peers[1])
		})
	}
}

// Peers continue when the death of another role has ended the lock-step. They end with the scheduler, within the bound.
func TestPeersBesideTheKilled(t *testing.T) {
	for _, van := range []vanKind{overTCP, overShm} {
		for _, victim := range []string{"worker 1", "server 0", "scheduler"} {
			t.Run(van.name+"/"+victim, func(t *testing.T) {
				f := raise(t, van, shape{workers: 2, servers: 2, peers: 2, peer: "bereave"}, "serve", "work", 1<<30)
				p := map[string]*process{"worker 1": f.workers[1], "server 0": f.servers[0], "scheduler": f.scheduler}[victim]
				peers := f.peers
				if victim != "scheduler" {
					f.peers = nil
				}
				f.killed(p, victim)
				f.peers = peers
				if victim == "scheduler" {
					return
				}
				for _, p := range f.peers {
					_, err := p.expect(limited(t), "done")
					require.NoError(t, err)
				}
			})
		}
	}
}

// Every wait ends with an error that names the process that was killed.
func TestKilledProcesses(t *testing.T) {
	for _, c := range []struct {
		name           string
		server, worker string // programs
		victim         func(*family) *process
		want           string
	}{
		{"worker, others exchange", "serve", "work", func(f *family) *process { return f.workers[1] }, "worker 1"},
		{"worker, others idle", "idle", "idle", func(f *family) *process { return f.workers[0] }, "worker 0"},
		{"worker, others in a barrier", "idle", "barrier", func(f *family) *process { return f.workers[0] }, "worker 0"},
		{"server, others in a barrier", "barrier", "idle", func(f *family) *process { return f.servers[0] }, "server 0"},
		{"worker, others wait for answers", "idle", "ask", func(f *family) *process { return f.workers[1] }, "worker 1"},
		{"server, others exchange", "serve", "work", func(f *family) *process { return f.servers[1] }, "server 1"},
		{"server, others idle", "serve", "idle", func(f *family) *process { return f.servers[0] }, "server 0"},
		{"scheduler, others exchange", "serve", "work", func(f *family) *process { return f.scheduler }, "scheduler"},
		{"scheduler, others idle", "serve", "idle", func(f *family) *process { return f.scheduler }, "scheduler"},
	} {
		for _, van := range []vanKind{overTCP, overShm} {
			t.Run(van.name+"/"+c.name, func(t *testing.T) {
				f := raise(t, van, shape{workers: 2, servers: 2}, c.server, c.worker, 1<<30)
				f.killed(c.victim(f), c.want)
			})
		}
	}
}

// Errors have the instance that died as their peer, not only in their text.
func TestErrorsAreAboutTheDead(t *testing.T) {
	for _, c := range []struct {
		name   string
		victim func(*family) *process
	}{
		{"worker 1", func(f *family) *process { return f.workers[1] }},
		{"server 0", func(f *family) *process { return f.servers[0] }},
		{"scheduler", func(f *family) *process { return f.scheduler }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := raise(t, overTCP, shape{workers: 2, servers: 2}, "mourn", "mourn", 0)
			f.killed(c.victim(f), `about ["`+c.name+`"]`)
		})
	}
}

// killed kills a process and requires that all others learn of it in time, by name.
func (f *family) killed(victim *process, name string) {
	f.t.Helper()
	require.NoError(f.t, victim.cmd.Process.Kill())
	ctx, cancel := context.WithTimeout(context.Background(), lossBound)
	defer cancel()
	for _, p := range f.processes() {
		if p == victim || p == f.scheduler {
			continue // the scheduler's program is in Stop, which waits for the others
		}
		_, err := p.expect(ctx, "nothing")
		require.ErrorContains(f.t, err, "error:")
		require.ErrorContains(f.t, err, name)
	}
	if victim != f.scheduler {
		_, err := f.scheduler.expect(limited(f.t), "done")
		require.NoError(f.t, err)
	}
}

// With batches of any ready worker, the workers that live continue after one has died.
func TestOthersGoOnWithoutTheDead(t *testing.T) {
	for _, van := range []vanKind{overTCP, overShm} {
		t.Run(van.name, func(t *testing.T) {
			f := raise(t, van, shape{workers: 3, servers: 1, edit: func(s *ps.Settings) { s.Batch = config.BatchAny }}, "tolerate", "work", 300)
			require.NoError(t, f.workers[2].cmd.Process.Kill())
			f.all(limited(t), "done", f.workers[2])
		})
	}
}
