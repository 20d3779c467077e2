package ps

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
)

// dead takes in the postoffice's verdict on a node of the cluster, on the driver.
func (m *member) dead(p Peer, err error) {
	m.node.options.onDead(p, err)
	m.link.SetEpoch(m.office.Epoch())
	m.link.Expel(p.ID, err)
	if p.Role == RoleScheduler || m.node.settings.Batch == config.BatchLockstep {
		m.node.lose(clusterError(p, err))
	}
}

// clusterError is why the cluster no longer works, with who died as the peer: of the scheduler the postoffice says so itself.
func clusterError(p Peer, err error) error {
	if p.Role == RoleScheduler {
		return err
	}
	return &stepvan.OpError{Op: "cluster", Peer: p.Name(), Err: err}
}

// lose ends the work of the node: the cluster cannot do without who is gone.
func (n *Node) lose(cause error) {
	n.fail(cause)
	for _, m := range n.members {
		if m.worker != nil {
			m.worker.Fail(n.Err())
		}
		if m.server != nil {
			m.server.Fail(n.Err())
		}
	}
	n.end()
}
