package config

import (
	"net"
	"strconv"

	"github.com/stepvan/stepvan"
)

// Rank is the rank of this instance within its role: STEPVAN_RANK, else
// DMLC_NODE_RANK * DMLC_GROUP_SIZE + STEPMESH_GPU + DMLC_RANK_OFFSET, else -1: the
// scheduler gives ranks in order of arrival. It means nothing for a scheduler.
func (s Settings) Rank() int {
	if s.PreferredRank >= 0 {
		return s.PreferredRank
	}
	if s.NodeRank < 0 {
		return -1
	}
	return s.rankOfNode()
}

func (s Settings) rankOfNode() int { return s.NodeRank*s.GroupSize + s.GPU + s.RankOffset }

// Instance is the index within the node that pairs a worker with servers:
// DMLC_INSTANCE_ID, else STEPMESH_GPU + DMLC_RANK_OFFSET, else what follows from
// STEPVAN_RANK. It is -1 when the rank is not known yet: then it is the rank that
// the scheduler gives, modulo the group size.
func (s Settings) Instance() int {
	switch {
	case s.InstanceID >= 0:
		return s.InstanceID
	case s.NodeRank >= 0:
		return s.GPU + s.RankOffset
	case s.GroupSize == 1:
		return 0
	case s.PreferredRank >= 0 && s.GroupSize > 0:
		return s.PreferredRank % s.GroupSize
	}
	return -1
}

// NumWorkerInstances is the number of worker ranks: worker nodes times group size.
func (s Settings) NumWorkerInstances() int { return s.NumWorker * s.GroupSize }

// NumServerInstances is the number of server ranks: server nodes times group size.
func (s Settings) NumServerInstances() int { return s.NumServer * s.GroupSize }

// NumPeerInstances is the number of peer ranks: peer nodes times group size.
func (s Settings) NumPeerInstances() int { return s.NumPeer * s.GroupSize }

// Instances is the number of instances of the whole cluster.
func (s Settings) Instances() int {
	return s.NumWorkerInstances() + s.NumServerInstances() + s.NumPeerInstances()
}

// roleInstances is the number of ranks of the role; of the larger role when joint.
func (s Settings) roleInstances() int {
	switch s.Role {
	case stepvan.RoleWorker:
		return s.NumWorkerInstances()
	case stepvan.RoleServer:
		return s.NumServerInstances()
	case stepvan.RolePeer:
		return s.NumPeerInstances()
	}
	return max(s.NumWorkerInstances(), s.NumServerInstances())
}

// pairedWorkers is the number of workers that one server instance gets requests from.
func (s Settings) pairedWorkers() int { return s.paired(s.NumWorker) }

func (s Settings) pairedServers() int { return s.paired(s.NumServer) }

// paired is the number of instances on so many nodes that are paired with one instance of the other role.
func (s Settings) paired(nodes int) int {
	if s.Pairing == stepvan.PairAll {
		return nodes * s.GroupSize
	}
	return nodes
}

// Policy is the policy of get_batch: STEPVAN_BATCH with STEPVAN_BATCH_MIN.
func (s Settings) Policy() stepvan.Policy {
	switch s.Batch {
	case BatchAny:
		return stepvan.AnyReady
	case BatchK:
		return stepvan.AtLeast(s.BatchMin)
	}
	return stepvan.LockStep
}

// Peers is the number of nodes that this one may hold a connection with, the
// scheduler included. A joint process counts for one worker and one server.
func (s Settings) Peers() int {
	switch s.Role {
	case stepvan.RoleWorker:
		return s.pairedServers() + 1
	case stepvan.RoleServer:
		return s.pairedWorkers() + 1
	case stepvan.RolePeer:
		return s.NumPeerInstances() // the others, and the scheduler
	case stepvan.RoleScheduler:
		return s.Instances()
	}
	return s.pairedServers() + s.pairedWorkers() + 2
}

// Binds reports whether threads must be bound to the cores of their device, and whether cores that this process may not
// use are an error. They are an error where Binding says so, and where a program has set numbers of cores itself. The
// scheduler moves no tensors, and is never bound.
func (s Settings) Binds() (wanted, must bool) {
	if s.Role == stepvan.RoleScheduler {
		return false, false
	}
	switch s.Binding {
	case BindingOn:
		return true, true
	case BindingAuto:
		return true, false
	case BindingOff:
		return false, false
	}
	d := Default()
	numbers := s.CPUCoresPerSocket != d.CPUCoresPerSocket || s.CPUCoresPerGPU != d.CPUCoresPerGPU || s.CPUStartOffset != d.CPUStartOffset
	return s.BindCPUCore, s.BindCPUCore && numbers
}

// RootAddr is the scheduler's address as net.Dial takes it.
func (s Settings) RootAddr() string { return net.JoinHostPort(s.RootURI, strconv.Itoa(s.RootPort)) }

// DataPorts lists the ports that this node must listen on; nil leaves the choice to the kernel.
func (s Settings) DataPorts() []int {
	if s.Port == 0 {
		return nil
	}
	ports := make([]int, s.NumPorts)
	for i := range ports {
		ports[i] = s.Port + i
	}
	return ports
}
