package stepvan

// Rank is the number of an instance among those of its role, from 0. The scheduler assigns it, unless the settings do.
type Rank int

// Role is what an instance or a process is in the cluster. Its text is a value of the setting DMLC_ROLE.
type Role string

// These are the roles of DMLC_ROLE. A joint process is two instances, a worker and a server. No instance has the role
// joint. A peer talks to the other peers of its cluster, and to no worker or server.
const (
	RoleWorker    Role = "worker"
	RoleServer    Role = "server"
	RolePeer      Role = "peer"
	RoleScheduler Role = "scheduler"
	RoleJoint     Role = "joint"
)

// Pairing says which servers a worker exchanges tensors with. Its text is a value of the setting STEPVAN_PAIRING.
type Pairing string

// These are the pairings of STEPVAN_PAIRING.
const (
	// PairInstance pairs a worker with the server of its own local rank on every node (DMLC_NODE_RANK).
	PairInstance Pairing = "instance"
	// PairAll pairs a worker with every server.
	PairAll Pairing = "all"
)
