package ps

import (
	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/device"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/server"
	"github.com/stepvan/stepvan/trace"
	"github.com/stepvan/stepvan/van/memvan"
	"github.com/stepvan/stepvan/worker"
)

// Settings has all settings of a node, with one field for each environment variable. A program begins with
// [DefaultSettings] and sets fields. [StartFromEnv] and [StartFrom] read the settings from an environment instead.
//
//   - [config.Settings.Validate] returns an error for each wrong setting. [Start] calls it.
//   - [config.Settings.Env] returns the settings as environment variables, for a child process.
//   - [config.Settings.Table] lists each setting with its value and its origin.
//   - [config.Settings.NumWorkerInstances] and other methods compute numbers from the settings.
type Settings = config.Settings

// Role is what an instance or a process is in the cluster.
type Role = stepvan.Role

// These are the roles of a node. A joint node is a worker and a server in one process. The Role of a [Peer] is never
// RoleJoint. A node with RolePeer talks to the other nodes with that role.
const (
	RoleWorker    = stepvan.RoleWorker
	RoleServer    = stepvan.RoleServer
	RoleScheduler = stepvan.RoleScheduler
	RoleJoint     = stepvan.RoleJoint
	RolePeer      = stepvan.RolePeer
)

// Rank is the number of an instance among those of its role, from 0.
type Rank = stepvan.Rank

// Peer is what the cluster knows about one instance, of any role. Its most important fields are Role, Rank, Host and
// PID. NodeRank is the rank of its group of instances (DMLC_NODE_RANK). LocalRank is its index in that group.
// [postoffice.Peer.Name] returns "worker 3", for example. [postoffice.Peer.String] adds the host and the process ID.
type Peer = postoffice.Peer

// Group is a set of roles, for [Node.Barrier]. [postoffice.Group.Has] reports whether a role is in it.
// [postoffice.Group.String] returns "servers and workers", for example.
type Group = postoffice.Group

// These are the groups of [Node.Barrier]. Combine them with |, as in Servers|Workers.
const (
	Scheduler = postoffice.GroupScheduler
	Servers   = postoffice.GroupServers
	Workers   = postoffice.GroupWorkers
	Peers     = postoffice.GroupPeers
)

// Pairing says which servers a worker exchanges tensors with.
type Pairing = stepvan.Pairing

// These are the pairings of a cluster (STEPVAN_PAIRING).
const (
	// PairInstance pairs a worker with the server of its own local rank on every node (DMLC_NODE_RANK).
	PairInstance = stepvan.PairInstance
	// PairAll pairs a worker with every server.
	PairAll = stepvan.PairAll
)

// Worker is the worker of a node: see [Node.Worker]. Most of its operations are methods of [Node]. A program may also
// need these methods of Worker:
//
//   - [worker.Worker.Register] prepares memory that the program pushes or pulls again and again.
//   - [worker.Worker.Servers] returns the number of its servers.
//   - [worker.Worker.Stats] returns its counters.
type Worker = worker.Worker

// Exchange has all arguments of an exchange, for [Node.Do]. The program may use the struct and its slices again when Do
// returns. The worker borrows the memory of the tensors until the [Handle] completes. When the handle completes with an
// error, a server may still read and write the tensors for a while. Until that ends, an exchange that would conflict
// with it returns [stepvan.ErrBusy]. The fields are:
//
//   - Push and Pull are the tensors. PushKeys and PullKeys have one key for each.
//   - Variable marks the pulls that a server may answer with fewer bytes.
//   - Routing chooses the servers. With the routing [Named], PushTo and PullTo name the server of each tensor.
//     PairWithPush makes the server that gets push i answer pull i.
//   - Stream is the stream of an accelerator that works on the tensors: see [Stream].
//   - Label names the exchange in traces and in the log.
type Exchange = worker.Exchange

// Stream names a stream of an accelerator. A push or an answer leaves when the work is over that the program queued to
// the stream before the call. [Handle.WaitOn] has a stream wait for pulls. The zero Stream is the default stream of the
// device that holds the tensors. Package device says which devices there are.
type Stream = device.Stream

// Handle names an exchange. It is a small value, which any goroutine may copy and use. It stays valid until
// STEPVAN_HANDLES later exchanges have completed. After that its methods return [stepvan.ErrStale].
//
//   - [worker.Handle.Wait] and [worker.Handle.WaitFor] wait until the exchange has completed.
//   - [worker.Handle.Done] reports whether it has completed, and [worker.Handle.Err] returns its error.
//   - [worker.Handle.PullLen] and [worker.Handle.Lengths] return how many bytes a server wrote to the Variable pulls.
//   - [worker.Handle.Trace] and [worker.Handle.Traces] return the time stamps ([Stamps]).
//   - [worker.Handle.Handles] returns one handle for each push and pull of the exchange. They complete together.
type Handle = worker.Handle

// Routing says which servers the tensors of an exchange go to.
type Routing = stepvan.Routing

// These are the routings of an [Exchange].
const (
	// DefaultRouting is the routing of the settings (STEPVAN_ROUTING).
	DefaultRouting = stepvan.DefaultRouting
	// Broadcast sends every push to every server. The pull tensors are server-major. Where each server writes P of
	// them, server s writes tensors s*P to s*P+P-1.
	Broadcast = stepvan.Broadcast
	// ByKey sends each tensor to the server that owns its key.
	ByKey = stepvan.ByKey
	// Named sends each tensor to the server that the exchange names for it.
	Named = stepvan.Named
)

// Registration is memory of a worker that [worker.Worker.Register] has prepared. [worker.Registration.Tensor] returns
// the tensor, and [worker.Registration.Close] ends the registration.
type Registration = worker.Registration

// ServerRegistration is memory of a server that [server.Server.Register] has prepared. [server.Registration.Tensor]
// returns the tensor, and [server.Registration.Close] ends the registration.
type ServerRegistration = server.Registration

// Server is the server of a node: see [Node.Server]. Most of its operations are methods of [Node]. A program may also
// need these methods of Server:
//
//   - [server.Server.Register] prepares memory that the program answers with again and again.
//   - [server.Server.Workers] returns the number of its workers.
//   - [server.Server.Rank] returns the rank of the server, also in a joint node.
//   - [server.Server.Stats] returns its counters.
type Server = server.Server

// Batch is what [Node.GetBatch] returns. Its field Requests has at most one [Request] of each worker, in the order of
// their ranks.
type Batch = server.Batch

// Request is the request of one worker in a [Batch]. Its field Worker is the rank of the worker, and its field ID names
// the request in [Node.Respond]. The program owns its memory until it responds.
//
//   - [server.Request.Pushes] and [server.Request.PushKeys] return the tensors that the worker pushed, and their keys.
//   - [server.Request.Pulls] returns what the worker pulls.
//   - [server.Request.In] returns push i for reading, without a copy. [server.Request.InPlace] reports whether that
//     tensor is memory of the worker.
//   - [server.Request.Out] returns a tensor for the answer to pull i. It is the worker's own pull tensor where the
//     server reaches that. Then a response with it sends no bytes.
type Request = server.Request

// Pull is what a worker pulls for one key. It has the Key, and the Bytes, DType and Shape of the pull tensor. When
// Variable is set, the answer may have fewer bytes.
type Pull = server.Pull

// RequestID names a [Request] until the program responds to it.
type RequestID = server.RequestID

// Response tells when the workers have received an answer. Until then the server borrows the tensors of the answer. A
// program that does not change them may ignore the Response.
//
//   - [server.Response.Wait] and [server.Response.WaitFor] wait until the workers have received the answer.
//   - [server.Response.Done] reports whether they have, and [server.Response.Err] returns the error.
type Response = server.Response

// ReceiveBuffer is memory that receives pushes: see [Node.RegisterRecvBuffer].
//
//   - [server.ReceiveBuffer.Wait] waits until the workers know of the buffer.
//   - [server.ReceiveBuffer.Tensor] returns its tensor.
//   - [server.ReceiveBuffer.Unregister] ends the registration.
type ReceiveBuffer = server.ReceiveBuffer

// PendingError is the error of [Node.RegisterRecvBuffer] when a worker has not acknowledged the buffer within ten
// seconds. The buffer is registered. The field Buffer is the buffer, so the program can continue to wait with
// [server.ReceiveBuffer.Wait]. The field Err names the worker.
type PendingError = server.PendingError

// Policy says what a batch waits for: see [Node.GetBatch]. [stepvan.Policy.String] returns its name.
type Policy = stepvan.Policy

// These are the policies of [Node.GetBatch]. [AtLeast] makes others.
const (
	// DefaultPolicy is the policy of the settings (STEPVAN_BATCH).
	DefaultPolicy = stepvan.DefaultPolicy
	// LockStep waits for one request from every paired worker. All workers must use the routing Broadcast.
	LockStep = stepvan.LockStep
	// AnyReady waits for a request from any worker.
	AnyReady = stepvan.AnyReady
)

// AtLeast returns the policy that waits for requests from at least k workers. k must be positive.
func AtLeast(k int) Policy { return stepvan.AtLeast(k) }

// Stamps are the eight time stamps of one request, in ns. [trace.Stamps.Total] returns how long the request took, and
// other methods return how long its parts took.
type Stamps = trace.Stamps

// Network connects nodes in one process: see [WithNetwork].
type Network = memvan.Network

// DefaultSettings returns the settings of an empty environment. The program must set Role, NumWorker, NumServer,
// RootURI and RootPort.
func DefaultSettings() Settings { return config.Default() }

// NewNetwork makes a network for nodes in one process: see [WithNetwork].
func NewNetwork() *Network { return memvan.NewNetwork() }
