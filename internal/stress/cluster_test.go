package stress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// cluster is one of processes.
type cluster struct {
	t                testing.TB
	dir              string // of its files: TMPDIR of all
	port             int
	scheduler        *child
	servers, workers []*child
}

// shape is what a cluster looks like.
type shape struct {
	workers, servers int
	work             work
	dir              string // TMPDIR; "": one of its own
	logs             bool   // what nodes log are events
	edit             func(*ps.Settings)
}

// settings of a node.
func (c shape) settings(van vanKind, role ps.Role, rank, port int) ps.Settings {
	s := base(van, c.workers, c.servers)
	s.Role, s.RootPort = role, port
	if role != ps.RoleScheduler {
		s.NodeRank = rank
	}
	if role == ps.RoleServer && rank%2 == 1 { // the workers fetch the responses of the others
		s.ResponseCopy = config.CopierServer
	}
	if c.work.Apart {
		s.Routing, s.Batch = stepvan.Named, config.BatchAny
	}
	if c.edit != nil {
		c.edit(&s)
	}
	return s
}

// raise starts a cluster and returns when all have started.
func raise(t testing.TB, van vanKind, c shape) *cluster {
	t.Helper()
	cl := begin(t, van, c)
	for r := range c.servers {
		cl.servers = append(cl.servers, cl.add(van, c, ps.RoleServer, r))
	}
	for r := range c.workers {
		cl.workers = append(cl.workers, cl.add(van, c, ps.RoleWorker, r))
	}
	for _, p := range cl.all() {
		if e := p.await(evStarted, nil); p != cl.scheduler {
			require.Equal(t, van.name, e.Text, "%s uses another van", p.name)
		}
	}
	return cl
}

// begin starts the scheduler.
func begin(t testing.TB, van vanKind, c shape) *cluster {
	t.Helper()
	cl := &cluster{t: t, dir: c.dir}
	if cl.dir == "" {
		cl.dir = private(t)
	}
	cl.scheduler = cl.add(van, c, ps.RoleScheduler, 0)
	cl.port = cl.scheduler.await(evPort, nil).Count
	return cl
}

// add starts a node's process.
func (cl *cluster) add(van vanKind, c shape, role ps.Role, rank int) *child {
	cl.t.Helper()
	return spawn(cl.t, c.settings(van, role, rank, cl.port), job{Program: "node", Work: c.work, Logs: c.logs}, "TMPDIR="+cl.dir)
}

func (cl *cluster) all() []*child {
	return append(append([]*child{cl.scheduler}, cl.servers...), cl.workers...)
}

// but lists all except some.
func (cl *cluster) but(gone ...*child) (out []*child) {
	for _, p := range cl.all() {
		found := false
		for _, g := range gone {
			found = found || g == p
		}
		if !found {
			out = append(out, p)
		}
	}
	return out
}

func tellAll(all []*child, cmd command) {
	for _, p := range all {
		p.tell(cmd)
	}
}
