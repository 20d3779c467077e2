package ps

import (
	"context"
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/link/progress"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/worker"
)

// member is one seat in the cluster: the scheduler, a worker, a server or a peer, with a link of
// its own. A joint node has two. The fields of other roles are nil.
type member struct {
	node *Node
	role Role
	id   *identity
	log  zerolog.Logger

	net       *reach.Endpoint
	link      *link.Transport // of net
	cluster   cluster         // the scheduler or the office
	scheduler *postoffice.Scheduler
	expects   string // the instances that the scheduler waits for
	office    *postoffice.Office
	worker    *worker.Worker
	server    *server.Server
	peer      *peer.Service
	ring      *trace.Ring
	sessions  []*link.Session // that a worker has opened
	opened    startSessions
	telling   sync.WaitGroup // of sessionLost
}

// cluster is what a member does in the cluster alike, as a postoffice.Scheduler or with a postoffice.Office.
type cluster interface {
	Admit(link.Identity) error
	Barrier(ctx context.Context, group Group, perInstance bool) error
	Board() *postoffice.Board
	Break(cause error)
	Peers() []Peer
	Stop(context.Context) error
}

func newMember(n *Node, role Role) *member {
	rank := -1
	if role != RoleScheduler {
		rank = n.settings.Rank()
	}
	id := newIdentity(string(role), rank)
	return &member{node: n, role: role, id: id, log: n.log.Hook(id)}
}

// open makes the member's link.
func (m *member) open() (err error) {
	s := m.node.settings
	if m.role == RoleScheduler {
		m.opened.end() // it tells nobody
	}
	m.net, err = reach.Open(reach.Options{
		Settings: s, Role: m.role, Network: m.node.options.network, Memory: m.node.memory, Near: m.node.placed.near(),
		Starved: m.node.starved, Shm: m.node.options.shm, RDMA: m.node.options.rdma, Devices: m.node.options.devices, Log: m.log,
		Link: link.Options{
			Progress: m.progress(), Admit: func(peer link.Identity) error { return m.cluster.Admit(peer) }, Opened: m.opened.add, Lost: m.sessionLost,
			Rehearsal: link.Rehearsal{After: s.PanicAfter, Locked: s.PanicLocked},
		},
	})
	if err == nil {
		m.link = m.net.Link
	}
	return err
}

func (m *member) progress() progress.Options {
	o := progressOf(m.node.settings, m.node.placed)
	o.Panicked = m.panicked
	return o
}

// build makes everything that is there before the first connection.
func (m *member) build() (err error) {
	s := m.node.settings
	if err := m.open(); err != nil {
		return err
	}
	if m.role != RoleScheduler {
		m.ring = ringOf(s)
	}
	switch m.role {
	case RoleScheduler:
		return m.buildScheduler()
	case RoleWorker:
		m.worker = worker.New(m.link, worker.Options{
			Routing: s.Routing, Handles: s.Handles, Outstanding: s.Outstanding, InPlaceBytes: inPlaceOf(s),
			Files: m.net.Memories(), CheckBorrowed: s.CheckBorrowed, Trace: m.ring, Log: m.log,
		})
	case RoleServer:
		if m.server, err = server.New(m.link, server.Options{
			Policy: s.Policy(), Handles: s.Handles, PoolLimit: int64(s.PoolBytes),
			Memory: m.net.Pool, CheckBorrowed: s.CheckBorrowed, Trace: m.ring, Log: m.log,
			Files: m.net.Memories(), Copying: copyingOf(s), Caches: server.Caches(m.node.placed.caches()),
		}); err != nil {
			return err
		}
	case RolePeer:
		m.peer = newPeering(m)
	}
	return m.buildOffice()
}

// postofficeOptions are what a scheduler and an office both need.
func (m *member) postofficeOptions() postoffice.Options {
	s := m.node.settings
	return postoffice.Options{
		GroupSize: s.GroupSize, Shared: sharedOf(s),
		HeartbeatInterval: s.HeartbeatInterval, HeartbeatTimeout: s.HeartbeatTimeout,
		Meeting: m.net.Meeting(), Host: reach.HostName(), PID: os.Getpid(), Recover: m.recover, Log: m.log,
	}
}

func (m *member) buildScheduler() (err error) {
	s := m.node.settings
	o := postoffice.SchedulerOptions{
		Options: m.postofficeOptions(), Workers: s.NumWorkerInstances(), Servers: s.NumServerInstances(), Peers: s.NumPeerInstances(),
		Pairing: s.Pairing, StartTimeout: s.StartTimeout,
	}
	m.expects = o.String()
	m.scheduler, err = postoffice.NewScheduler(m.link, o)
	if err == nil {
		m.cluster = m.scheduler
	}
	return err
}

func (m *member) buildOffice() (err error) {
	s := m.node.settings
	m.office, err = postoffice.NewOffice(m.link, postoffice.OfficeOptions{
		Options: m.postofficeOptions(), Role: m.role,
		Rank: stepvan.Rank(s.Rank()), Instance: postoffice.LocalRank(s.Instance()), OnDead: m.dead,
		OnLeft: func(p Peer, err error) { // workers and servers learn it from their sessions; a peer may have none
			if m.peer != nil {
				m.peer.Lost(p.ID, err)
			}
		},
	})
	if err == nil {
		m.cluster = m.office
	}
	return err
}

// start brings the member into the cluster.
func (m *member) start(ctx context.Context) error {
	if m.scheduler != nil {
		return m.openScheduler(ctx)
	}
	return m.join(ctx)
}

func (m *member) openScheduler(ctx context.Context) error {
	port, err := m.net.ListenAsScheduler(ctx)
	if err != nil {
		return err
	}
	// Scripts of StepMesh and of its forks wait for the words in parentheses.
	m.log.Info().Msgf("bound to port %d, waiting for %s (Bind to, SCHEDULER_READY)", port, m.expects)
	m.node.settings.RootPort = port
	m.node.options.onListen(port)
	return m.scheduler.Start(ctx)
}

// progressOf is how the waits of a node wait. The scheduler waits for minutes, and takes no core from the others.
func progressOf(s *Settings, p *placement) progress.Options {
	o := progress.Options{Cores: p.share(), Throttled: p.throttled(), Bind: p.bind()}
	if s.Role == stepvan.RoleScheduler {
		return o
	}
	switch s.Progress {
	case config.ProgressSpin:
		o.Mode = progress.Spin
	case config.ProgressPark:
		o.Mode = progress.Park
	}
	return o
}

// sharedOf are the settings on which all nodes must agree.
func sharedOf(s *Settings) []postoffice.Setting {
	pairs := s.Shared()
	out := make([]postoffice.Setting, len(pairs))
	for i, p := range pairs {
		out[i] = postoffice.Setting(p)
	}
	return out
}

// ringOf keeps the entries of a trace; nil keeps none.
func ringOf(s *Settings) *trace.Ring {
	if s.TraceEvents == 0 {
		return nil
	}
	return trace.NewRing(s.TraceEvents)
}

// copyingOf is the side that copies responses.
func copyingOf(s *Settings) server.Copying {
	switch s.ResponseCopy {
	case config.CopierServer:
		return server.CopyByServer
	case config.CopierWorker:
		return server.CopyByWorker
	}
	return server.CopyAuto
}

// inPlaceOf is the size for the worker, where 0 stands for a default and a negative size for none.
func inPlaceOf(s *Settings) int {
	if s.InPlaceBytes == 0 {
		return -1
	}
	return int(s.InPlaceBytes)
}
