package ps

import (
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/stepvan/stepvan/internal/sparing"
	"github.com/stepvan/stepvan/internal/storages"
	"github.com/stepvan/stepvan/tensor"
)

// Node is a node that has joined a cluster: see [Start]. Any goroutine may call its methods.
type Node struct {
	settings     *Settings
	options      options
	log          zerolog.Logger
	starvedLines *sparing.Lines // of the log, about descriptors that have run out
	placed       *placement
	memory       *tensor.Allocator
	members      []*member
	storages     *storages.Table // nil: only the program registers memory

	life    *lifecycle
	closing sync.Once
}

// Role returns the role in the settings. It is [RoleJoint] for a worker and a server in one process.
func (n *Node) Role() Role { return n.settings.Role }

// Rank returns the rank of this instance within its role. A joint node returns the rank of its worker. The rank of its
// server is [server.Server.Rank] of [Node.Server]. The rank of the scheduler is 0.
func (n *Node) Rank() Rank {
	if o := n.members[0].office; o != nil {
		return o.Self().Rank
	}
	return 0
}

// String returns "worker 3", "worker 3 and server 3" or "scheduler", for example. It takes no lock.
func (n *Node) String() string {
	var names []string
	for _, m := range n.members {
		names = append(names, m.id.String())
	}
	return strings.Join(names, " and ")
}

// Worker returns the worker of this node. It is nil for a server and the scheduler.
func (n *Node) Worker() *Worker {
	for _, m := range n.members {
		if m.worker != nil {
			return m.worker
		}
	}
	return nil
}

// Server returns the server of this node. It is nil for a worker and the scheduler.
func (n *Node) Server() *Server {
	for _, m := range n.members {
		if m.server != nil {
			return m.server
		}
	}
	return nil
}

// Memory returns the allocator of this node. Its tensors lie in memory that peers on this machine can map. Tensors that
// the program still has when the node stops stay usable.
func (n *Node) Memory() *tensor.Allocator { return n.memory }

// Peers lists the instances that this node exchanges tensors with, in the order of their ranks. A worker has servers, a
// server has workers, and a joint node has both. A node with [RolePeer] has the others with that role. For the
// scheduler it lists all instances that live.
func (n *Node) Peers() []Peer {
	var out []Peer
	for _, m := range n.members {
		out = append(out, m.cluster.Peers()...)
	}
	return out
}

// Done returns a channel that closes when the node can work no more. That is so after [Node.Stop] or [Node.Close],
// after a panic of this library, or when the cluster has lost an instance that it needs. [Node.Err] tells which.
func (n *Node) Done() <-chan struct{} { return n.life.ended.Done() }

// Err returns why the node can work no more. It is a [stepvan.OpError] whose Peer is the instance that died, or the
// [stepvan.InternalError] of this node. It is nil while the node works, and after a [Node.Stop] without loss.
func (n *Node) Err() error { return n.life.err() }
