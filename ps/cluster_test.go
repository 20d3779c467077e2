package ps_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

// bound is the limit of every wait of these tests: reached only when something hangs.
const bound = 30 * time.Second

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// vanKind is a transport that a cluster of these tests runs over.
type vanKind struct {
	name  string
	apply func(*ps.Settings) []ps.Option
}

func overMem() vanKind {
	net := ps.NewNetwork()
	return vanKind{"mem", func(s *ps.Settings) []ps.Option {
		s.Van = config.VanMem
		return []ps.Option{ps.WithNetwork(net)}
	}}
}

var overTCP = vanKind{"tcp", func(s *ps.Settings) []ps.Option {
	s.Van = config.VanTCP
	return nil
}}

var overUnix = vanKind{"unix", func(s *ps.Settings) []ps.Option {
	s.Local, s.Van = true, config.VanTCP
	return nil
}}

var overShm = vanKind{"shm", func(s *ps.Settings) []ps.Option {
	s.Van = config.VanShm
	return nil
}}

// byChoice leaves the van to the nodes.
var byChoice = vanKind{"auto", func(*ps.Settings) []ps.Option { return nil }}

// vans are those that nodes of one process can use, betweenProcesses those that processes can.
func vans() []vanKind { return append(betweenProcesses(), overMem()) }

func betweenProcesses() []vanKind { return []vanKind{overTCP, overUnix, overShm} }

// shape is what a test cluster looks like.
type shape struct {
	workers, servers int // nodes
	peers            int
	group            int
	joint            bool   // workers and servers in common nodes
	peer             string // the program of peers, where each node is a process
	edit             func(*ps.Settings)
	each             map[string]func(*ps.Settings)    // of single nodes, by "role rank"
	fit              func(name string, cmd *exec.Cmd) // of processes: what is not in the settings
	opts             []ps.Option
}

// settings lists those of all nodes: the scheduler, then servers, then peers, then workers.
func (c shape) settings(van vanKind) (all []ps.Settings, opts []ps.Option) {
	base := ps.DefaultSettings()
	base.NumWorker, base.NumServer, base.NumPeer, base.GroupSize = c.workers, c.servers, c.peers, max(c.group, 1)
	base.RootURI, base.StartTimeout = "127.0.0.1", bound
	base.LogLevel = config.LogOff
	opts = append(c.opts, van.apply(&base)...)
	if c.edit != nil {
		c.edit(&base)
	}
	add := func(role ps.Role, nodes int) {
		for i := range nodes * base.GroupSize {
			s := base
			s.Role, s.NodeRank, s.GPU = role, i/base.GroupSize, i%base.GroupSize
			if edit := c.each[fmt.Sprintf("%s %d", role, i)]; edit != nil {
				edit(&s)
			}
			all = append(all, s)
		}
	}
	s := base
	s.Role = ps.RoleScheduler
	all = append(all, s)
	if c.joint {
		add(ps.RoleJoint, c.workers)
		return all, opts
	}
	add(ps.RoleServer, c.servers)
	add(ps.RolePeer, c.peers)
	add(ps.RoleWorker, c.workers)
	return all, opts
}

// cluster is a started one. The joint nodes of one are both workers and servers.
type cluster struct {
	t         testing.TB
	all       []*ps.Node
	scheduler *ps.Node
	servers   []*ps.Node
	workers   []*ps.Node
	peers     []*ps.Node
}

func start(t testing.TB, van vanKind, c shape) *cluster {
	t.Helper()
	settings, opts := c.settings(van)
	opts = append([]ps.Option{ps.WithLogger(zerolog.Nop())}, opts...)
	nodes, err := ps.StartAll(limited(t), settings, opts...)
	require.NoError(t, err)
	cl := &cluster{t: t, all: nodes, scheduler: nodes[0]}
	for _, n := range nodes[1:] {
		if n.Server() != nil {
			cl.servers = append(cl.servers, n)
		}
		if n.Worker() != nil {
			cl.workers = append(cl.workers, n)
		}
		if n.Role() == ps.RolePeer {
			cl.peers = append(cl.peers, n)
		}
	}
	t.Cleanup(func() { cl.abort() })
	return cl
}

// stop stops all nodes, which must go well.
func (c *cluster) stop() {
	c.t.Helper()
	ctx := limited(c.t)
	each(c.t, c.all, func(n *ps.Node) error { return n.Stop(ctx) })
}

// abort ends what a test has left.
func (c *cluster) abort() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range c.all {
		_ = n.Stop(gone)
	}
}

// each calls f for all nodes at once and requires that none fails.
func each(t testing.TB, nodes []*ps.Node, f func(*ps.Node) error) {
	t.Helper()
	results := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			err := f(n)
			if err != nil {
				err = fmt.Errorf("%s: %w", n, err)
			}
			results <- err
		}()
	}
	for range nodes {
		require.NoError(t, <-results)
	}
}

// serve answers every pull with the first push, each byte increased by the server's rank
// plus one, until all workers have stopped.
func serve(ctx context.Context, n *ps.Node) error {
	s, err := newEcho(n)
	if err != nil {
		return err
	}
	return s.run(ctx, ps.DefaultPolicy)
}

func key(rank ps.Rank, i int) tensor.Key { return tensor.Key(rank)<<16 | tensor.Key(i) }
