package stepvan

// Rank numbers the instances of one role, from 0. The scheduler gives it, unless the settings do.
type Rank int

// Role is what an instance or a process is in the cluster. DMLC_ROLE has the same text.
type Role string

// The roles of DMLC_ROLE. A joint process is two instances, a worker and a server: no instance has the role joint.
const (
	RoleWorker    Role = "worker"
	RoleServer    Role = "server"
	RoleScheduler Role = "scheduler"
	RoleJoint     Role = "joint"
)

// Pairing says which servers a worker exchanges tensors with. STEPVAN_PAIRING has the same text.
type Pairing string

// The pairings of STEPVAN_PAIRING.
const (
	// PairInstance pairs a worker with the server of the same local rank on every node.
	PairInstance Pairing = "instance"
	// PairAll pairs a worker with every server.
	PairAll Pairing = "all"
)
