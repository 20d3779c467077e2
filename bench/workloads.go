package bench

import "time"

// Workload is what is measured.
type Workload string

// The workloads.
const (
	Echo    Workload = "echo"    // a server sends back what it gets
	AFD     Workload = "afd"     // a server answers with a buffer of its own, to all workers at once
	AFD3    Workload = "afd3"    // afd between computations on both sides, several micro-batches in flight
	Incast  Workload = "incast"  // many workers, one server: the cost of a request, compared with one worker
	Fanout  Workload = "fanout"  // one worker, many servers
	Pairs   Workload = "pairs"   // echo of several workers, each with a server of its own
	Weights Workload = "weights" // large tensors one way, a few bytes back
	Barrier Workload = "barrier" // all workers and servers wait for each other
	Batch   Workload = "batch"   // a server takes and answers a batch that has arrived
	Idle    Workload = "idle"    // nothing is exchanged: what that costs the processor
	Start   Workload = "start"   // processes start, exchange once and stop
	P2P     Workload = "p2p"     // two peers send a tensor back and forth
	Put     Workload = "put"     // a peer writes into a window of another, which answers the note
	Refit   Workload = "refit"   // the weights of a model move from one parallel layout to another
	Bus     Workload = "bus"     // a registered tensor moves over the tensor bus
	Replay  Workload = "replay"  // collectors fill a slot of a learner with the rows of a batch; a push is a row, and a pull the batch

	Particles Workload = "particles" // a message to a particle and back
)

// Workloads lists them all.
var Workloads = []Workload{
	Echo, AFD, AFD3, Incast, Fanout, Pairs, Weights, Barrier, Batch, Idle, Start, P2P, Put, Refit, Bus, Replay, Particles,
}

// Sizes and time of one layer of Step-3. It has 128 tokens of hidden size 7168, pushed as
// fp8 and pulled as bf16, and three stages of 273 us.
const (
	afdPush     Size = 896 << 10
	afdStage         = 273 * time.Microsecond
	weightsPush Size = 256 << 20
	smallBytes  Size = 8
	busPush     Size = 16 << 10

	batchInflight = 64 // batches between two barriers, which take much longer

	idleTime = time.Second // that a worker of idle lets pass as one of its exchanges
)

// traits are the defaults of a workload, and what else differs between workloads.
type traits struct {
	workers, servers, inflight int           // 0: 1
	push                       Size          // 0: 8
	pull                       Size          // 0: pullsPerPush times the push
	pullsPerPush               Size          // 0: 1
	compute                    time.Duration // 0: none
	echoes                     bool          // the answers are the pushed bytes
	lockStep                   bool          // a server takes a request of each worker at once
	bare                       bool          // the limit is an exchange of worker 0 and servers without stepvan
	limit                      string        // name of a limit that is not such an exchange alone; "": none
	python, peers              bool          // nodes in Python, or peers, can run it
	alike                      bool          // the nodes have the role peer. The first of them are called workers, the others servers
}

var workloads = map[Workload]traits{
	Echo:    {echoes: true, bare: true, python: true, peers: true},
	AFD:     {push: afdPush, pullsPerPush: 2, lockStep: true, bare: true, python: true, peers: true},
	AFD3:    {push: afdPush, pullsPerPush: 2, lockStep: true, bare: true, inflight: 3, compute: afdStage, limit: limitStages},
	Incast:  {workers: 8, echoes: true, limit: limitOneWorker},
	Fanout:  {servers: 4, echoes: true, bare: true, python: true},
	Pairs:   {workers: 2, servers: 2, echoes: true},
	Weights: {push: weightsPush, pull: smallBytes, bare: true, python: true},
	Barrier: {echoes: true, bare: true},
	Batch:   {workers: 8, inflight: batchInflight, echoes: true, lockStep: true, python: true},
	Idle:    {echoes: true, python: true},
	Start:   {echoes: true, limit: limitProcess},
	P2P:     {echoes: true, bare: true, alike: true},
	Put:     {pull: smallBytes, bare: true, alike: true},
	Refit:   {bare: true, alike: true},
	Replay:  {push: replayRow, pull: replayBatch, bare: true, alike: true},
	Bus:     {push: busPush, pull: smallBytes, bare: true, alike: true, limit: limitPlan},

	Particles: {echoes: true, bare: true, alike: true},
}

// traits of the workload. Those of an unknown one are all zero.
func (o *Options) traits() traits { return workloads[o.Workload] }
