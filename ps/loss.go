package ps

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

// dead is called by the driver when the postoffice knows that an instance died.
func (m *member) dead(p Peer, err error) {
	m.node.options.onDead(p, err)
	m.link.SetEpoch(m.office.Epoch())
	m.link.Expel(p.ID, err)
	if m.peer != nil {
		m.peer.Lost(p.ID, err)
	}
	if m.needs(p) {
		m.node.failOperations(clusterError(p, err))
	}
}

// needs reports whether the member can do nothing without an instance that died. In lock-step, workers and servers need
// all workers and servers. The death of a peer fails only what names it, and peers need no workers and servers.
func (m *member) needs(p Peer) bool {
	switch {
	case p.Role == RoleScheduler:
		return true
	case p.Role == RolePeer, m.role == RolePeer:
		return false
	}
	return m.node.settings.Batch == config.BatchLockstep
}

// clusterError is why the cluster no longer works, with the instance that died as the peer. The postoffice has named
// the scheduler itself.
func clusterError(p Peer, err error) error {
	if p.Role == RoleScheduler {
		return err
	}
	return &stepvan.OpError{Op: "cluster", Peer: p.Name(), Err: err}
}

// failOperations ends the work of the node: the cluster cannot do without the instance that cause names.
func (n *Node) failOperations(cause error) {
	n.life.failed.set(cause)
	for _, m := range n.members {
		if m.worker != nil {
			m.worker.Fail(n.Err())
		}
		if m.server != nil {
			m.server.Fail(n.Err())
		}
		if m.peer != nil {
			m.peer.Fail(n.Err())
		}
	}
	n.life.ended.set(nil)
}
