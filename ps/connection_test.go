package ps_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// posed is memvan in the place of another van: what decides on the choice of a van is played.
type posed struct {
	van.Van
	name config.Van
	away error // why nobody is within reach
}

func (p posed) Caps() van.Caps {
	c := p.Van.Caps()
	c.Name = string(p.name)
	return c
}

func (p posed) Probe(string) error { return p.away }

func (p posed) Listen(string) (string, error) { return p.Van.Listen("data:0") }

// missing says by "role rank" which instances do not reach others over a van.
type missing struct {
	without map[string]error // they have no such van
	away    map[string]error // nobody is within its reach
}

// stage is what instances lack. Without devices nobody has RDMA.
type stage struct {
	missing // of shared memory
	devices bool
	rdma    missing
}

func (st stage) options() []ps.Option {
	opts := []ps.Option{st.option(config.VanShm), st.rdma.option(config.VanRDMA)}
	if st.devices {
		return append(opts, ps.WithDevices("mlx5_0", "mlx5_1"))
	}
	opts[1] = ps.WithVan(config.VanRDMA, func(ps.Settings, van.Placer, func()) (van.Van, error) {
		return nil, errors.New("no device")
	})
	return append(opts, ps.WithDevices())
}

func (m missing) option(kind config.Van) ps.Option {
	net := ps.NewNetwork()
	return ps.WithVan(kind, func(s ps.Settings, p van.Placer, wake func()) (van.Van, error) {
		name := fmt.Sprintf("%s %d", s.Role, s.NodeRank)
		if err := m.without[name]; err != nil {
			return nil, err
		}
		v, err := memvan.New(net, memvan.Options{Placer: p, Wake: wake})
		return posed{v, kind, m.away[name]}, err
	})
}

// settle starts a cluster of nodes that choose.
func settle(t *testing.T, c shape, st stage) (*cluster, *journal) {
	t.Helper()
	log := &journal{}
	c.opts = append(c.opts, append(st.options(), ps.WithLogger(zerolog.New(log).Level(zerolog.InfoLevel)))...)
	return start(t, byChoice, c), log
}

func soon(s *ps.Settings) { s.StartTimeout = 300 * time.Millisecond }

func only(v config.Van) func(*ps.Settings) { return func(s *ps.Settings) { s.Van = v } }

// Each pair takes the best that both have, and both say what it is and why.
func TestChoice(t *testing.T) {
	noMemory, elsewhere := errors.New("memfd_create: operation not permitted"), errors.New("other machine")
	local := func(s *ps.Settings) { s.Local = true }
	for name, c := range map[string]struct {
		shape shape
		stage stage
		edit  map[string]func(*ps.Settings)
		want  map[string]string // lines by node
	}{
		"one machine": {want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "worker 1": "servers 0-1: shm (same machine)",
			"server 0": "workers 0-1: shm (same machine)", "server 1": "workers 0-1: shm (same machine)",
		}},
		"this machine only": {shape: shape{edit: local}, want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "server 1": "workers 0-1: shm (same machine)",
		}},
		"this machine only, without memory to share": {
			shape: shape{edit: local}, stage: stage{missing: missing{without: map[string]error{"worker 0": noMemory}}},
			want: map[string]string{
				"worker 0": "servers 0-1: unix (shm: memfd_create: operation not permitted)", "worker 1": "servers 0-1: shm (same machine)",
				"server 0": "worker 0: unix (shm: memfd_create: operation not permitted, reported by the worker); worker 1: shm (same machine)",
			},
		},
		"tcp everywhere": {shape: shape{edit: only(config.VanTCP)}, want: map[string]string{
			"worker 0": "servers 0-1: tcp (STEPVAN_VAN=tcp)", "server 0": "workers 0-1: tcp (STEPVAN_VAN=tcp)",
		}},
		"shm everywhere": {shape: shape{edit: only(config.VanShm)}, want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "server 0": "workers 0-1: shm (same machine)",
		}},
		"a server on tcp": {edit: map[string]func(*ps.Settings){"server 1": only(config.VanTCP)}, want: map[string]string{
			"worker 0": "server 0: shm (same machine); server 1: tcp (shm: not offered there, rdma: no device)",
			"server 0": "workers 0-1: shm (same machine)", "server 1": "workers 0-1: tcp (STEPVAN_VAN=tcp)",
		}},
		"a worker on tcp": {edit: map[string]func(*ps.Settings){"worker 0": only(config.VanTCP)}, want: map[string]string{
			"worker 0": "servers 0-1: tcp (STEPVAN_VAN=tcp)", "worker 1": "servers 0-1: shm (same machine)",
			"server 0": "worker 0: tcp (STEPVAN_VAN=tcp, reported by the worker); worker 1: shm (same machine)",
		}},
		"a worker elsewhere": {stage: stage{missing: missing{away: map[string]error{"worker 1": elsewhere}}}, want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "worker 1": "servers 0-1: unix (shm: other machine)",
			"server 0": "worker 0: shm (same machine); worker 1: unix (shm: other machine, reported by the worker)",
		}},
		"a server without memory to share": {stage: stage{missing: missing{without: map[string]error{"server 0": noMemory}}}, want: map[string]string{
			"worker 0": "server 0: unix (shm: not offered there); server 1: shm (same machine)",
			"server 0": "workers 0-1: unix (shm: memfd_create: operation not permitted)",
		}},
		"RDMA, not needed on one machine": {stage: stage{devices: true}, want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "server 0": "workers 0-1: shm (same machine)",
		}},
		"RDMA for all": {shape: shape{edit: only(config.VanRDMA)}, stage: stage{devices: true}, want: map[string]string{
			"worker 0": "servers 0-1: rdma (STEPVAN_VAN=rdma)", "server 0": "workers 0-1: rdma (STEPVAN_VAN=rdma)",
		}},
		"RDMA between machines": {
			shape: shape{edit: only(config.VanShmRDMA)}, stage: stage{devices: true, missing: missing{away: map[string]error{"worker 1": elsewhere}}},
			want: map[string]string{
				"worker 0": "servers 0-1: shm (same machine)", "worker 1": "servers 0-1: rdma (shm: other machine)",
				"server 0": "worker 0: shm (same machine); worker 1: rdma (shm: other machine, reported by the worker)",
			},
		},
		"no RDMA, and no other machine": {shape: shape{edit: only(config.VanShmRDMA)}, want: map[string]string{
			"worker 0": "servers 0-1: shm (same machine)", "server 0": "workers 0-1: shm (same machine)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.shape.workers, c.shape.servers, c.shape.each = 2, 2, c.edit
			cl, log := settle(t, c.shape, c.stage)
			for _, n := range cl.all[1:] {
				if want := c.want[n.String()]; want != "" {
					require.Equal(t, want, n.Connections().String(), "%s", n)
					require.Contains(t, log.String(), `"message":"`+want+`"`)
				}
			}
			require.Empty(t, cl.scheduler.Connections())
			cl.exercise(1000, 3)
			require.Empty(t, cl.workers[0].Connections(), "what has ended is no connection")
		})
	}
}

// What a setting demands and a pair cannot have is an error that names both and says what to set.
func TestChoiceThatCannotBe(t *testing.T) {
	elsewhere := errors.New("other machine")
	for name, c := range map[string]struct {
		stage stage
		edit  map[string]func(*ps.Settings)
		at    int      // of the node whose error is about its settings: 0 is the server, 1 the worker
		alone bool     // nobody else learns of it
		want  []string // in everybody's error
	}{
		"shm with another machine": {
			stage: stage{missing: missing{away: map[string]error{"worker 0": elsewhere}}},
			edit:  map[string]func(*ps.Settings){"worker 0": only(config.VanShm)},
			at:    1,
			want:  []string{`STEPVAN_VAN="shm"`, "worker 0 (", "with server 0 (", "memory cannot be shared (other machine)", "set STEPVAN_VAN=auto on both"},
		},
		"shm demanded by another machine": {
			stage: stage{missing: missing{away: map[string]error{"worker 0": elsewhere}}},
			edit:  map[string]func(*ps.Settings){"server 0": only(config.VanShm)},
			at:    1,
			want:  []string{`STEPVAN_VAN="shm"`, "worker 0 (", "with server 0 (", "(other machine)", "set STEPVAN_VAN=auto at server 0"},
		},
		"shm demanded of a worker that has none": {
			stage: stage{missing: missing{without: map[string]error{"worker 0": errors.New("no memfd")}}},
			edit:  map[string]func(*ps.Settings){"server 0": only(config.VanShm)},
			at:    1,
			want:  []string{`STEPVAN_VAN="shm"`, "worker 0 (", "(no memfd)", "set STEPVAN_VAN=auto at server 0"},
		},
		"shm here, tcp there": {
			edit: map[string]func(*ps.Settings){"worker 0": only(config.VanShm), "server 0": only(config.VanTCP)},
			at:   1,
			want: []string{`STEPVAN_VAN="shm"`, "worker 0 (", "with server 0 (", "it offers tcp only", "set STEPVAN_VAN=auto or shm there, or auto here"},
		},
		"tcp here, shm there": {
			edit: map[string]func(*ps.Settings){"worker 0": only(config.VanTCP), "server 0": only(config.VanShm)},
			at:   1,
			want: []string{`STEPVAN_VAN="tcp"`, "worker 0 (", "with server 0 (", "it offers shm only", "set STEPVAN_VAN=auto or tcp there, or auto here"},
		},
		"shm that cannot be had": {
			stage: stage{missing: missing{without: map[string]error{"server 0": errors.New("no memfd")}}},
			edit:  map[string]func(*ps.Settings){"server 0": only(config.VanShm), "worker 0": soon},
			at:    0,
			alone: true,
			want:  []string{`STEPVAN_VAN="shm"`, "no memfd", "stepvan doctor", "auto"},
		},
		"rdma that cannot be had": {
			edit:  map[string]func(*ps.Settings){"server 0": only(config.VanRDMA), "worker 0": soon},
			at:    0,
			alone: true,
			want:  []string{`STEPVAN_VAN="rdma"`, "RDMA cannot be used here: no device", "stepvan doctor", "auto"},
		},
		"rdma with a server out of reach": {
			stage: stage{devices: true, rdma: missing{away: map[string]error{"worker 0": errors.New("no route")}}},
			edit:  map[string]func(*ps.Settings){"worker 0": only(config.VanRDMA)},
			at:    1,
			want:  []string{`STEPVAN_VAN="rdma": RDMA cannot be used (no route): set STEPVAN_VAN=auto on both`},
		},
		"rdma here, tcp there": {
			stage: stage{devices: true},
			edit:  map[string]func(*ps.Settings){"worker 0": only(config.VanRDMA), "server 0": only(config.VanTCP)},
			at:    1,
			want:  []string{`STEPVAN_VAN="rdma"`, "it offers tcp only"},
		},
		"shm+rdma with another machine, and no device here": {
			stage: stage{missing: missing{away: map[string]error{"worker 0": elsewhere}}},
			edit:  map[string]func(*ps.Settings){"worker 0": only(config.VanShmRDMA)},
			at:    1,
			want:  []string{`STEPVAN_VAN="shm+rdma": memory cannot be shared (other machine), RDMA cannot be used (no device): set `},
		},
		"neither shm nor rdma": {
			stage: stage{missing: missing{without: map[string]error{"server 0": errors.New("no memfd")}}},
			edit:  map[string]func(*ps.Settings){"server 0": only(config.VanShmRDMA), "worker 0": soon},
			at:    0,
			alone: true,
			want:  []string{`STEPVAN_VAN="shm+rdma"`, "RDMA cannot be used here: no device"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, opts := shape{workers: 1, servers: 1, each: c.edit}.parts(t, byChoice)
			if c.alone {
				soon(&all[0])
			}
			opts = append(append(opts, c.stage.options()...), ps.WithLogger(zerolog.Nop()))
			var scheduler sync.WaitGroup
			scheduler.Go(func() {
				if n, err := ps.Start(limited(t), all[0], opts...); err == nil {
					_ = n.Stop(limited(t)) // the others have left or are dead
				}
			})
			results := startSome(t, all[1:], opts)
			scheduler.Wait()
			var bad *stepvan.ConfigError
			require.ErrorAs(t, results[c.at], &bad)
			for i, err := range results {
				require.Error(t, err)
				for _, w := range c.want {
					if i == c.at || !c.alone {
						require.ErrorContains(t, err, w)
					}
				}
			}
		})
	}
}

// A machine that has RDMA, and connects over TCP, says so once, unless the settings want TCP.
func TestWarningOfTCP(t *testing.T) {
	const warning = "although this machine has RDMA (mlx5_0, mlx5_1)"
	toTCP := map[string]func(*ps.Settings){"server 1": only(config.VanTCP)}
	_, log := settle(t, shape{workers: 1, servers: 2, each: toTCP}, stage{devices: true})
	require.Equal(t, 1, strings.Count(log.String(), warning), "the worker, not the server that wants TCP")
	require.Contains(t, log.String(), "server 1: tcp (shm: not offered there, rdma: not offered there), "+warning)
	_, log = settle(t, shape{workers: 1, servers: 2, each: toTCP}, stage{})
	require.NotContains(t, log.String(), "although")
	_, log = settle(t, shape{workers: 1, servers: 1}, stage{devices: true})
	require.NotContains(t, log.String(), "although", "shared memory needs no RDMA")
}

// Each van says its name to workers and to servers.
func TestConnectionsOfEachVan(t *testing.T) {
	want := map[string]string{"mem": "mem (same process)", "tcp": "tcp (STEPVAN_VAN=tcp)", "unix": "unix (STEPVAN_VAN=tcp)", "shm": "shm (same machine)"}
	for _, van := range vans() {
		t.Run(van.name, func(t *testing.T) {
			c := start(t, van, shape{workers: 2, servers: 2, joint: true})
			for _, n := range c.workers {
				all := n.Connections()
				require.Len(t, all, 4, "as a worker with 2 servers, as a server with 2 workers")
				require.Equal(t, "servers 0-1: "+want[van.name]+"; workers 0-1: "+want[van.name], all.String())
				require.Equal(t, "server 0: "+want[van.name], all[0].String())
			}
			c.exercise(100, 2)
		})
	}
}

// A line stays short however many peers there are.
func TestConnectionsInOneLine(t *testing.T) {
	peers := func(role stepvan.Role, van, reason string, ranks ...int) (out ps.Connections) {
		for _, r := range ranks {
			out = append(out, ps.Connection{Peer: ps.Peer{Role: role, Rank: ps.Rank(r)}, Van: van, Reason: reason})
		}
		return out
	}
	var thousand, odd, strange []int
	for i := range 1000 {
		thousand = append(thousand, i)
		if i%2 == 1 {
			odd = append(odd, i)
		}
	}
	const server, worker = stepvan.RoleServer, stepvan.RoleWorker
	join := func(all ...ps.Connections) (out ps.Connections) {
		for _, a := range all {
			out = append(out, a...)
		}
		return out
	}
	var kinds ps.Connections
	for i := range 20 {
		strange = append(strange, i)
		kinds = append(kinds, peers(server, "tcp", fmt.Sprintf("shm: reason %d", i), strange[i])...)
	}
	for _, c := range []struct {
		all  ps.Connections
		want string
	}{
		{nil, ""},
		{peers(server, "shm", "same machine", 3), "server 3: shm (same machine)"},
		{peers(server, "shm", "same machine", 4, 1, 2, 7), "servers 1-2, 4, 7: shm (same machine)"},
		{peers(server, "tcp", "shm: other machine", thousand...), "servers 0-999: tcp (shm: other machine)"},
		{peers(server, "tcp", "x", odd...), "servers 1, 3, 5, 7, 9, 11, 13, 15 and 492 more: tcp (x)"},
		{join(peers(server, "tcp", "x", 0), peers(server, "shm", "y", 1, 2)), "servers 1-2: shm (y); server 0: tcp (x)"},
		{join(peers(server, "shm", "y", 0), peers(worker, "shm", "y", 0)), "server 0: shm (y); worker 0: shm (y)"},
	} {
		require.Equal(t, c.want, c.all.String())
	}
	line := kinds.String()
	require.Equal(t, 8, strings.Count(line, "reason"), line)
	require.Contains(t, line, "; 12 others in other ways")
}
