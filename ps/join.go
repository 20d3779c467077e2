package ps

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/worker"
)

// join registers a worker, server or peer, connects a worker with its servers, and passes the start barrier. Instances
// with the role peer may connect after that, when each of them knows the others.
func (m *member) join(ctx context.Context) error {
	var own []string
	var err error
	if m.worker == nil {
		if own, err = m.net.Listen(ctx); err != nil {
			return err
		}
	}
	if err := m.office.Join(ctx, m.net.Scheduler(), own); err != nil {
		return err
	}
	m.id.rank.Store(int64(m.office.Self().Rank))
	m.link.SetEpoch(m.office.Epoch())
	if err := m.connectPeers(ctx); err != nil {
		return err
	}
	stop := m.logWaiting(func() string { return "the others at the start barrier" })
	defer stop()
	if err := m.office.Barrier(ctx, everybody(m.node.settings), true); err != nil {
		return err
	}
	if all := m.among(m.opened.end()); len(all) > 0 {
		m.log.Info().Msg(all.String())
		m.warnOfTCP(all)
	}
	return nil
}

// everybody is the group of all roles that the cluster has, without the scheduler.
func everybody(s *Settings) (g Group) {
	for group, nodes := range map[Group]int{Servers: s.NumServer, Workers: s.NumWorker, Peers: s.NumPeer} {
		if nodes > 0 {
			g |= group
		}
	}
	return g
}

// connectPeers tells the instance its peers, and connects a worker with them. Without peers there is nothing to do:
// operations return an error then.
func (m *member) connectPeers(ctx context.Context) error {
	peers := m.office.Peers()
	rank := m.office.Self().Rank
	if m.peer != nil {
		return joinPeers(m.peer, m.office.Self(), peers)
	}
	if len(peers) == 0 {
		m.log.Warn().Msg("this node is paired with nobody: check DMLC_NUM_WORKER, DMLC_NUM_SERVER and DMLC_INSTANCE_ID")
		return nil
	}
	if m.server != nil {
		workers := make([]server.Worker, len(peers))
		for i, p := range peers {
			workers[i] = server.Worker{Rank: p.Rank, Name: p.Name(), ID: p.ID}
		}
		return m.server.Join(rank, workers)
	}
	sessions, err := m.dialAll(ctx, peers)
	if err != nil {
		return err
	}
	m.sessions = sessions
	servers := make([]worker.Server, len(peers))
	for i, p := range peers {
		servers[i] = worker.Server{Rank: p.Rank, Name: p.Name(), Session: sessions[i]}
	}
	return m.worker.Join(rank, servers)
}

// dialAll connects with all peers. What was opened before an error is closed with the link.
func (m *member) dialAll(ctx context.Context, peers []Peer) ([]*link.Session, error) {
	open := make([]atomic.Bool, len(peers))
	stop := m.logWaiting(func() string { return "connections with " + strings.Join(notConnected(peers, open), ", ") })
	defer stop()
	sessions := make([]*link.Session, len(peers))
	tasks := make([]func(context.Context) error, len(peers))
	for i, p := range peers {
		tasks[i] = func(ctx context.Context) (err error) {
			if sessions[i], err = m.net.Dial(ctx, p); err != nil {
				return &stepvan.OpError{Op: "connect " + m.office.Self().String(), Peer: p.String(), Err: err}
			}
			open[i].Store(true)
			return nil
		}
	}
	return sessions, m.node.inParallel(ctx, tasks...)
}

// maxListed is how many peers a line names at most.
const maxListed = 8

// notConnected names the peers whose connection is not open.
func notConnected(peers []Peer, open []atomic.Bool) []string {
	var names []string
	for i, p := range peers {
		if open[i].Load() {
			continue
		}
		if len(names) == maxListed {
			return append(names, "...")
		}
		names = append(names, p.String())
	}
	return names
}

// waitingEvery is the time between lines that say what a start waits for.
const waitingEvery = 5 * time.Second

// logWaiting logs every few seconds what the start waits for, until stopped.
func (m *member) logWaiting(what func() string) (stop func()) {
	return sparing.Every(waitingEvery, func(waited time.Duration) {
		m.log.Info().Msgf("waiting %v for %s", waited.Round(time.Second), what())
	})
}
