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
// with [DefaultSettings].
//
//   - [config.Settings.Validate] finds what is wrong. [Start] calls it.
//   - [config.Settings.Env] returns the environment for a child process.
//   - [config.Settings.Table] lists the values with their origin.
//   - [config.Settings.NumWorkerInstances] and others derive numbers.
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

// Peer is what the cluster knows about one instance. Its most important fields are Role, Rank, Host and
// PID. NodeRank is the rank of its node, and LocalRank its index in the node. [postoffice.Peer.Name] reads "worker 3".
// [postoffice.Peer.String] adds host and process.
type Peer = postoffice.Peer

// Group is a set of roles, for [Node.Barrier]. [postoffice.Group.Has] tells whether a role is in it.
// [postoffice.Group.String] reads "servers and workers".
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

// Worker is the worker of a node: see [Node.Worker]. Most of its operations are methods of [Node]. It alone has these:
//
//   - [worker.Worker.Register] prepares memory that is used again and again.
//   - [worker.Worker.Servers] tells how many servers there are.
//   - [worker.Worker.Stats] returns its counters.
type Worker = worker.Worker

// Exchange is a push_pull in full, for [Node.Do]. [Node.Do] does not keep it. The memory of its tensors is borrowed
// until the [Handle] completes. When the handle completes with an error, a server may still write to the pull tensors
// for a while. The worker refuses exchanges that use them until then. The fields are:
//
//   - Push, PushKeys, Pull and PullKeys are the tensors, with one key for each.
//   - Variable marks pulls that a server may answer with fewer bytes.
//   - Routing, PushTo and PullTo name the servers. PairWithPush has the server that gets push i answer pull i.
//   - Label names the exchange in traces and in the log.
type Exchange = worker.Exchange

// Handle names an exchange. It is a small value, which any goroutine may copy and use. It stays valid until
// STEPVAN_HANDLES later exchanges have completed. Then its methods return [stepvan.ErrStale].
//
//   - [worker.Handle.Wait] and [worker.Handle.WaitFor] wait until the exchange has completed.
//   - [worker.Handle.Done] and [worker.Handle.Err] tell whether it has, and with which error.
//   - [worker.Handle.PullLen] and [worker.Handle.Lengths] tell how many bytes came for pulls of variable length.
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

// Registration holds memory of a worker that [worker.Worker.Register] has prepared. [worker.Registration.Tensor]
// returns its tensor. [worker.Registration.Close] ends it.
type Registration = worker.Registration

// Server is the server of a node: see [Node.Server]. Most of its operations are methods of [Node]. It alone has these:
//
//   - [server.Server.Workers] tells how many workers there are.
//   - [server.Server.Stats] returns its counters.
type Server = server.Server

// Batch is what [Node.GetBatch] returns. Its field Requests has at most one [Request] of each worker, by rank.
type Batch = server.Batch

// Request is the request of one worker in a [Batch]. Its field Worker is the rank of the worker, and its field ID names
// the request in [Node.Respond]. Its memory is the program's until it responds.
//
//   - [server.Request.Pushes] and [server.Request.PushKeys] return the tensors that were pushed, and their keys.
//   - [server.Request.Pulls] returns what the worker wants.
//   - [server.Request.In] returns push i where it is: in the memory of the worker if the server reaches it, else in
//     memory of the server. [server.Request.InPlace] tells which.
//   - [server.Request.Out] returns a tensor for the answer to pull i. A respond with it sends no bytes if it is in the
//     memory of the worker.
type Request = server.Request

// Pull is what a worker wants for one key: Bytes, DType and Shape of its tensor, and whether fewer bytes will do.
type Pull = server.Pull

// RequestID names a [Request] until the respond.
type RequestID = server.RequestID

// Response tells when the workers have received what one respond sent. Until then the tensors of the respond are
// borrowed. A program that does not change them may ignore the Response.
//
//   - [server.Response.Wait] and [server.Response.WaitFor] wait until the workers have received it.
//   - [server.Response.Done] and [server.Response.Err] tell whether they have, and with which error.
type Response = server.Response

// ReceiveBuffer is memory that receives pushes: see [Node.RegisterRecvBuffer].
//
//   - [server.ReceiveBuffer.Wait] waits until the workers know of it.
//   - [server.ReceiveBuffer.Tensor] returns its tensor.
//   - [server.ReceiveBuffer.Unregister] ends it.
type ReceiveBuffer = server.ReceiveBuffer

// PendingError is the error of [Node.RegisterRecvBuffer] when a worker takes long to acknowledge. The buffer is
// registered all the same: it is the field Buffer, on which the program can wait. The field Err names the worker.
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

// Stamps are the eight time stamps of one exchange with one server, in ns. [trace.Stamps.Total] tells how long it took,
// and the other methods how long its parts took.
type Stamps = trace.Stamps

// Network connects nodes of one process: see [WithNetwork].
type Network = memvan.Network

// DefaultSettings returns the settings of an empty environment. The program must set Role, NumWorker, NumServer,
// RootURI and RootPort.
func DefaultSettings() Settings { return config.Default() }

// NewNetwork makes a network for nodes of one process: see [WithNetwork].
func NewNetwork() *Network { return memvan.NewNetwork() }
