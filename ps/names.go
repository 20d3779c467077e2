package ps

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/worker"
)

// What programs need of the layers below, so that they import ps and tensor only.
type (
	Settings = config.Settings
	Role     = stepvan.Role
	Rank     = stepvan.Rank    // of an instance within its role, from 0
	Peer     = postoffice.Peer // what the cluster knows about an instance
	Group    = postoffice.Group

	Worker         = worker.Worker
	Exchange       = worker.Exchange // one push_pull in full: see Node.Do
	Handle         = worker.Handle
	Routing        = stepvan.Routing
	Registration   = worker.Registration
	Server         = server.Server
	Batch          = server.Batch
	Request        = server.Request // one worker's request in a Batch
	Pull           = server.Pull
	RequestID      = server.RequestID
	Response       = server.Response
	ReceiveBuffer  = server.ReceiveBuffer
	PendingError   = server.PendingError
	Policy         = stepvan.Policy
	Pairing        = stepvan.Pairing
	Stamps         = trace.Stamps
	Network        = memvan.Network
	NetworkOptions = memvan.NetworkOptions
)

// Roles of a node.
const (
	RoleWorker    = stepvan.RoleWorker
	RoleServer    = stepvan.RoleServer
	RoleScheduler = stepvan.RoleScheduler
	RoleJoint     = stepvan.RoleJoint
)

// Groups of Barrier; join them with |.
const (
	Scheduler = postoffice.GroupScheduler
	Servers   = postoffice.GroupServers
	Workers   = postoffice.GroupWorkers
)

// Policies of GetBatch. DefaultPolicy is that of the settings (STEPVAN_BATCH).
const (
	DefaultPolicy = stepvan.DefaultPolicy
	LockStep      = stepvan.LockStep
	AnyReady      = stepvan.AnyReady
)

// AtLeast is the policy that waits for requests from k workers.
func AtLeast(k int) Policy { return stepvan.AtLeast(k) }

// Routings of an Exchange. DefaultRouting is that of the settings (STEPVAN_ROUTING).
const (
	DefaultRouting = stepvan.DefaultRouting
	Broadcast      = stepvan.Broadcast
	ByKey          = stepvan.ByKey
	Named          = stepvan.Named
)

// Pairings of a cluster (STEPVAN_PAIRING).
const (
	PairInstance = stepvan.PairInstance
	PairAll      = stepvan.PairAll
)

// DefaultSettings are those of an empty environment. Role, NumWorker, NumServer, RootURI
// and RootPort must be set.
func DefaultSettings() Settings { return config.Default() }

// NewNetwork makes a network for nodes of one process: see WithNetwork.
func NewNetwork(o NetworkOptions) *Network { return memvan.NewNetwork(o) }
