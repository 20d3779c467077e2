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

// Settings is what a node needs to know to join a cluster and to work in it: one field per environment variable. Begin
// with [DefaultSettings]. Its methods are [config.Settings.Validate], [config.Settings.Env] (for a child process),
// [config.Settings.Table] (with the origin of each value) and those that derive numbers, such as
// [config.Settings.NumWorkerInstances].
type Settings = config.Settings

// Role is what an instance or a process is in the cluster.
type Role = stepvan.Role

// Roles of a node. A joint node is a worker and a server in one process. The Role of a [Peer] is never joint.
const (
	RoleWorker    = stepvan.RoleWorker
	RoleServer    = stepvan.RoleServer
	RoleScheduler = stepvan.RoleScheduler
	RoleJoint     = stepvan.RoleJoint
)

// Rank numbers the instances of one role, from 0.
type Rank = stepvan.Rank

// Peer is what the cluster knows about one instance: ID, Role, Rank, NodeRank, LocalRank, Host, PID, Addresses.
// [postoffice.Peer.Name] reads "worker 3", [postoffice.Peer.String] adds host and process.
type Peer = postoffice.Peer

// Group is a set of roles, for [Node.Barrier]. Its methods are [postoffice.Group.Has] and [postoffice.Group.String].
type Group = postoffice.Group

// Groups of [Node.Barrier]. Join them with |.
const (
	Scheduler = postoffice.GroupScheduler
	Servers   = postoffice.GroupServers
	Workers   = postoffice.GroupWorkers
)

// Pairing says which servers a worker exchanges tensors with.
type Pairing = stepvan.Pairing

// Pairings of a cluster (STEPVAN_PAIRING).
const (
	// PairInstance pairs a worker with the server of the same local rank on every node.
	PairInstance = stepvan.PairInstance
	// PairAll pairs a worker with every server.
	PairAll = stepvan.PairAll
)

// Worker is the worker of a node: see [Node.Worker]. Most of its operations are methods of [Node]. Only here are
// [worker.Worker.Register], which prepares memory that is used again and again, [worker.Worker.Servers] (how many there
// are) and [worker.Worker.Stats].
type Worker = worker.Worker

// Exchange is a push_pull in full, for [Node.Do]: the tensors with their keys, the routing, the servers by name, pulls
// of variable length, and a label for traces. The call reads it, and does not keep it. The memory of the tensors is
// borrowed until the [Handle] completes. If it completes with an error, a server may still write to the pull tensors
// for a while: then the worker refuses exchanges that use them.
type Exchange = worker.Exchange

// Handle names an exchange until well after it has completed. It is a small value, which any goroutine may use.
//
//   - [worker.Handle.Wait] and [worker.Handle.WaitFor] wait for the end. [worker.Handle.Done] and [worker.Handle.Err]
//     ask.
//   - [worker.Handle.PullLen] and [worker.Handle.Lengths] tell the bytes of pulls of variable length.
//   - [worker.Handle.Trace] and [worker.Handle.Traces] return the time stamps.
//   - [worker.Handle.Handles] returns one handle for each operation of the exchange.
type Handle = worker.Handle

// Routing says which servers the tensors of an exchange go to.
type Routing = stepvan.Routing

// Routings of an [Exchange].
const (
	// DefaultRouting is the routing of the settings (STEPVAN_ROUTING).
	DefaultRouting = stepvan.DefaultRouting
	// Broadcast sends every push to every server. Pulls are server-major: with S servers and P pulls of each, server s
	// writes pull tensor s*P+i.
	Broadcast = stepvan.Broadcast
	// ByKey sends each tensor to the owner of its key.
	ByKey = stepvan.ByKey
	// Named sends each tensor to the server that the exchange names for it.
	Named = stepvan.Named
)

// Registration holds memory of a worker that [worker.Worker.Register] has prepared. [worker.Registration.Close] ends
// it, and [worker.Registration.Tensor] returns its tensor.
type Registration = worker.Registration

// Server is the server of a node: see [Node.Server]. Most of its operations are methods of [Node]. Only here are
// [server.Server.Workers] (how many there are) and [server.Server.Stats].
type Server = server.Server

// Batch is what [Node.GetBatch] returns: its Requests, at most one of each worker, by rank.
type Batch = server.Batch

// Request is the request of one worker in a [Batch]. Its memory is the program's until it responds.
//
//   - [server.Request.Pushes] and [server.Request.PushKeys] return what was pushed, [server.Request.Pulls] what is
//     wanted.
//   - [server.Request.In] and [server.Request.Out] return the worker's own memory of a push and of a pull, where the
//     server reaches it, and memory of the server elsewhere.
//   - [server.Request.InPlace] tells which of the two In is.
type Request = server.Request

// Pull is what a worker wants for one key: Bytes, DType and Shape of its tensor, and whether fewer bytes will do.
type Pull = server.Pull

// RequestID names a [Request] until the respond.
type RequestID = server.RequestID

// Response tells when the workers have received what one respond sent. Until then its tensors are borrowed. A program
// that does not change them may ignore it. [server.Response.Wait] and [server.Response.WaitFor] wait for that,
// [server.Response.Done] and [server.Response.Err] ask.
type Response = server.Response

// ReceiveBuffer is memory that receives pushes: see [Node.RegisterRecvBuffer]. [server.ReceiveBuffer.Unregister] ends
// it, [server.ReceiveBuffer.Wait] waits until the workers know of it, and [server.ReceiveBuffer.Tensor] returns its
// tensor.
type ReceiveBuffer = server.ReceiveBuffer

// PendingError is the error of [Node.RegisterRecvBuffer] when a worker takes long to acknowledge. The buffer, its field
// Registration, is registered all the same.
type PendingError = server.PendingError

// Policy says what a batch waits for: see [Node.GetBatch]. [stepvan.Policy.String] is its name.
type Policy = stepvan.Policy

// Policies of [Node.GetBatch]. [AtLeast] makes others.
const (
	// DefaultPolicy is the policy of the settings (STEPVAN_BATCH).
	DefaultPolicy = stepvan.DefaultPolicy
	// LockStep waits for one request from every paired worker.
	LockStep = stepvan.LockStep
	// AnyReady waits for a request from any worker.
	AnyReady = stepvan.AnyReady
)

// AtLeast is the policy that waits for requests from k workers. k must be positive.
func AtLeast(k int) Policy { return stepvan.AtLeast(k) }

// Stamps are the eight time stamps of one exchange with one server, in ns. [trace.Stamps.Total] and the other methods
// tell how long its parts took.
type Stamps = trace.Stamps

// Network connects nodes of one process: see [WithNetwork].
type Network = memvan.Network

// DefaultSettings returns the settings of an empty environment. The program must set Role, NumWorker, NumServer,
// RootURI and RootPort.
func DefaultSettings() Settings { return config.Default() }

// NewNetwork makes a network for nodes of one process: see [WithNetwork].
func NewNetwork() *Network { return memvan.NewNetwork() }
