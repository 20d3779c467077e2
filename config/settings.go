package config

import (
	"time"

	"github.com/stepvan/stepvan"
)

// Settings is what a node needs to know to join a cluster and to work in it. [FromEnv] fills it from the environment. A
// program that sets fields itself begins with [Default], and [Settings.Validate] finds its mistakes.
//
// The tags are the table of settings:
//
//	name      the variable
//	alias     further variables that mean the same; different values are an error
//	misspelt  an alias that is accepted with a warning
//	default   the value when no variable is set
//	then      what the default is when it follows from other settings
//	required  "yes": one of the variables must be set
//	values    the accepted words, map the words that stand for one of them
//	min, max  limits, inclusive; unit is that of a bare number of a duration
//	shared    "yes": all nodes of a cluster must agree (see Shared)
//	env       "always": Env writes it even when it has its default
//	group     starts a section of docs/settings.md
type Settings struct {
	Role      stepvan.Role `group:"Cluster" name:"DMLC_ROLE" required:"yes" values:"worker server scheduler joint peer" doc:"What this process is. With joint it is a worker and a server in one process. With peer it may talk to each other peer of the cluster, and to no worker or server."`
	NumWorker int          `name:"DMLC_NUM_WORKER" required:"yes" then:"0 in a cluster with peers" min:"0" max:"1000000" shared:"yes" doc:"Number of worker nodes; instances are nodes times DMLC_GROUP_SIZE."`
	NumServer int          `name:"DMLC_NUM_SERVER" required:"yes" then:"0 in a cluster with peers" min:"0" max:"1000000" shared:"yes" doc:"Number of server nodes; instances are nodes times DMLC_GROUP_SIZE."`
	NumPeer   int          `name:"STEPVAN_NUM_PEER" default:"0" min:"0" max:"1000000" shared:"yes" doc:"Number of peer nodes; instances are nodes times DMLC_GROUP_SIZE. A cluster may have peers alone, or beside workers and servers."`
	GroupSize int          `name:"DMLC_GROUP_SIZE" default:"1" min:"1" max:"65536" shared:"yes" doc:"Instances that make one node, one per accelerator."`
	RootURI   string       `name:"DMLC_PS_ROOT_URI" required:"yes" doc:"Host name or address of the scheduler, IPv4 or IPv6, without scheme and port. 127.0.0.1 when DMLC_LOCAL=1 and nothing is set."`
	RootPort  int          `name:"DMLC_PS_ROOT_PORT" required:"yes" min:"0" max:"65535" doc:"Port of the scheduler. Only the scheduler itself may have 0: a free port."`
	Local     bool         `name:"DMLC_LOCAL" default:"0" shared:"yes" doc:"1: this machine only. Nodes use shared memory, and Unix sockets where memory cannot be shared, but no network."`

	NodeRank      int    `group:"This process" name:"DMLC_NODE_RANK" default:"-1" then:"0 with STEPMESH_GPU or DMLC_RANK_OFFSET, else by arrival (-1)" min:"-1" max:"999999" env:"always" doc:"The node's rank within its role. With -1 the scheduler gives ranks in order of arrival. The rank of an instance is DMLC_NODE_RANK * DMLC_GROUP_SIZE + STEPMESH_GPU + DMLC_RANK_OFFSET."`
	RankOffset    int    `name:"DMLC_RANK_OFFSET" default:"0" min:"-1000000" max:"1000000" doc:"Added to the device number in rank and instance. With -4, devices 4 to 7 are the instances 0 to 3."`
	InstanceID    int    `name:"DMLC_INSTANCE_ID" default:"-1" then:"STEPMESH_GPU + DMLC_RANK_OFFSET (-1)" min:"-1" max:"65535" doc:"Index of the instance within its node. A worker is paired with the servers of the same index."`
	PreferredRank int    `name:"STEPVAN_RANK" default:"-1" then:"from DMLC_NODE_RANK (-1)" min:"-1" max:"1000000000" doc:"Rank of this instance within its role, for launchers that count instances rather than nodes."`
	NodeHost      string `name:"DMLC_NODE_HOST" then:"the address of DMLC_INTERFACE, else the one that reaches the scheduler" doc:"Address or host name that others use to reach a server or a peer. It has no effect elsewhere."`
	Interface     string `name:"DMLC_INTERFACE" then:"the one that reaches the scheduler" doc:"Name of the network interface at which others reach a server or a peer. Connections over RDMA begin at its device, at workers too, unless STEPVAN_RDMA_DEVICES names others. The word auto selects the first RDMA port that the node uses, and means the same as unset where it uses none."`
	Port          int    `name:"DMLC_PORT" default:"0" then:"free ports (0)" min:"0" max:"65535" doc:"First data port that a server or a peer listens on. It has no effect elsewhere."`
	NumPorts      int    `name:"DMLC_NUM_PORTS" default:"1" min:"1" max:"1024" doc:"How many data ports, counted up from DMLC_PORT."`

	Van          Van    `group:"Transport" name:"STEPVAN_VAN" alias:"DMLC_ENABLE_RDMA DMLC_PS_VAN_TYPE" default:"auto" values:"auto tcp shm rdma shm+rdma mem" doc:"How payload travels. With auto it is the best van that a pair of nodes has in common. On one machine that is shared memory, or Unix sockets where memory cannot be shared. Between machines it is RDMA, or TCP where a node has no RDMA. With shm only shared memory carries payload, so a peer of another machine or user is an error. With rdma it is RDMA for all pairs, also on one machine. With shm+rdma it is shared memory on one machine and RDMA between machines, and never TCP. With tcp it is TCP, or Unix sockets with DMLC_LOCAL=1. The van mem works within one process only. STEPVAN_VAN wins over the other two names. Shared memory takes 1.6 MiB per pair of nodes, half of it in each process, and less between peers (STEPVAN_PEER_RING_BYTES)." map:"ibverbs=shm+rdma verbs=shm+rdma 1=shm+rdma true=shm+rdma zmq=tcp 0=tcp false=tcp"`
	Rails        int    `name:"STEPVAN_RAILS" default:"1" min:"1" max:"16" doc:"TCP connections per peer; large tensors are striped over them."`
	PieceBytes   Bytes  `name:"STEPVAN_PIECE_BYTES" default:"1MiB" min:"4KiB" max:"1GiB" doc:"stepvan cuts large messages into pieces of this size, so that small messages pass between them."`
	CreditBytes  Bytes  `name:"STEPVAN_CREDIT_BYTES" default:"256MiB" min:"64KiB" max:"1TiB" doc:"Payload that a peer may have sent here and that this node has not released yet."`
	SmallBytes   Bytes  `name:"STEPVAN_SMALL_BYTES" default:"16KiB" min:"0" max:"1MiB" doc:"A node reads a message up to this size from a socket together with its header, and copies it once. Sockets only."`
	PeerMemory   bool   `name:"STEPVAN_PEER_MEMORY" default:"1" doc:"With shared memory: how tensors outside of stepvan's memory are read. 1: where they are, with process_vm_readv. 0: they are copied once more, through shared memory, both ways. Set 0 for memory whose reader may have to wait for a process: userfaultfd, files of FUSE."`
	InPlaceBytes Bytes  `name:"STEPVAN_IN_PLACE_BYTES" default:"4KiB" min:"0" max:"16TiB" doc:"With shared memory: pushes above this size stay in the worker's memory when their request has pulls. The server reads them there. Smaller ones are sent. The worker copies pushes of 128 KiB to 4 MiB outside of stepvan's memory to memory of its own, where the server reads them. 0: servers reach no tensor of this worker."`
	ResponseCopy Copier `name:"STEPVAN_RESPONSE_COPY" default:"auto" values:"auto server worker" doc:"With shared memory: which side copies responses of respond and respond_vec. With server, the server writes them into the worker's pull tensors, where it reaches these. With worker, the worker fetches them from the server's tensors. With auto, the caches of the server's machine, the sizes and the state of the server decide for each response. It has an effect at servers only, and none on respond of fserver_lib, where the server always copies."`
	Grants       int    `name:"STEPVAN_GRANTS" default:"4096" min:"64" max:"65536" doc:"With shared memory: how many registered chunks of a server, and memory files of a worker, one peer reaches at once. It is rounded up to a power of two, and the smaller of the two sides' values applies. Pushes to further chunks are copied, and the server logs a warning. Each takes 72 bytes per connection in both processes. Between peers it is an eighth of this number, at least 64: they grant whole memory files."`
	PeerRing     Bytes  `name:"STEPVAN_PEER_RING_BYTES" default:"64KiB" min:"64KiB" max:"1GiB" doc:"With shared memory: the ring through which a peer sends messages to another peer. Large payload does not go through it. It is rounded up to a power of two. Each pair of peers that talk to each other has two rings, one in each process. Between workers and servers the rings have 512 KiB."`
	PoolBytes    Bytes  `name:"STEPVAN_POOL_BYTES" default:"4GiB" min:"1MiB" max:"16TiB" doc:"Limit of pooled memory per node. It receives tensors without a registered buffer, and holds copies of answers and pushes."`

	RDMADevices  string `group:"RDMA" name:"STEPVAN_RDMA_DEVICES" then:"those whose ports work, software only where there is no hardware" doc:"The RDMA devices that may be used, written as NCCL_IB_HCA is. With mlx5 those are all whose names begin so. With =mlx5_0:1,mlx5_1:1 those are two ports of devices with exactly these names. With ^ before the list it is all others. Ports that are not active are skipped. The command stepvan devices shows what is used."`
	RDMAGIDIndex int    `name:"STEPVAN_RDMA_GID_INDEX" default:"-1" then:"the best that fits (-1)" min:"-1" max:"65535" doc:"Index in the GID table of each RDMA port, for RoCE v2 and InfiniBand. With -1 that is an IPv4 address, else an IPv6 address, else a link-local one. A port that has no such entry is skipped."`
	RDMAWindows  bool   `name:"STEPVAN_RDMA_WINDOWS" default:"0" doc:"1: each peer gets keys of its own for the memory that it may write, and they end with the permission. Devices need memory windows of type 2 for that. With 0 a peer that breaks the rules reaches all memory that is registered for RDMA."`
	RDMATraffic  int    `name:"STEPVAN_RDMA_TRAFFIC_CLASS" default:"0" then:"what the system sets (0)" min:"0" max:"255" doc:"Traffic class of the packets of RDMA, as in the header of IP: DSCP times 4, and 2 for ECN."`
	RDMAQPs      int    `name:"STEPVAN_RDMA_QPS" default:"1" min:"1" max:"8" doc:"Queue pairs between two instances, over each pair of ports. With several, messages are spread over them, large payload is cut, and one that fails costs no message. The side that connects decides: a worker, or either of two peers. Not with STEPVAN_RDMA_WINDOWS, nor over iWARP."`
	RDMAPorts    int    `name:"STEPVAN_RDMA_PORTS" default:"1" min:"1" max:"7" doc:"RDMA ports of a worker over which one connection goes, to as many ports of the server: the first of the one to the first of the other. Between peers the one that connects takes the place of the worker. It goes over fewer where either side has fewer. Together with STEPVAN_RDMA_QPS there are at most 8 queue pairs."`

	Routing     stepvan.Routing `group:"Requests" name:"STEPVAN_ROUTING" default:"broadcast" values:"broadcast key named" shared:"yes" doc:"Where push tensors go. With broadcast they go to every paired server, and with key to the owner of their key. With named they go to the servers that the caller names." map:"by-key=key bykey=key"`
	Pairing     stepvan.Pairing `name:"STEPVAN_PAIRING" default:"instance" values:"instance all" shared:"yes" doc:"instance: a worker talks to the servers of its own index on every node. all: to every server instance."`
	Batch       BatchWord       `name:"STEPVAN_BATCH" default:"lockstep" then:"any with key or named routing" values:"lockstep any k" shared:"yes" env:"always" doc:"What get_batch waits for. With lockstep that is one request from every paired worker, and with any it is any request. With k it is requests of at least STEPVAN_BATCH_MIN workers." map:"lock-step=lockstep"`
	BatchMin    int             `name:"STEPVAN_BATCH_MIN" default:"0" min:"0" max:"1000000000" shared:"yes" doc:"With STEPVAN_BATCH=k: the least number of workers in a batch."`
	Outstanding int             `name:"STEPVAN_OUTSTANDING" default:"4096" min:"1" max:"16777216" doc:"Requests that a worker may have outstanding. It refuses one more until one has finished."`
	Handles     int             `name:"STEPVAN_HANDLES" default:"65536" min:"1" max:"16777216" doc:"A finished handle stays valid until this many later ones have finished."`

	CheckBorrowed bool `name:"STEPVAN_CHECK_BORROWED" default:"0" doc:"1: a checksum finds tensors that the program changes while they are borrowed. Pushes are borrowed from push_pull until their handle has finished, answers from respond until their response is done. A changed push fails its handle. A changed answer fails its response and is an error in the log. Each such tensor is read twice more."`

	MaxHeaderBytes  Bytes `group:"Limits" name:"STEPVAN_MAX_HEADER_BYTES" default:"1MiB" min:"4KiB" max:"64MiB" shared:"yes" doc:"Largest header of a message, tensor descriptors included, that a node accepts from a peer."`
	MaxMessageBytes Bytes `name:"STEPVAN_MAX_MESSAGE_BYTES" default:"64GiB" min:"64KiB" max:"16TiB" shared:"yes" doc:"Largest payload of one request or response."`
	MaxTensors      int   `name:"STEPVAN_MAX_TENSORS" default:"4096" min:"1" max:"65535" shared:"yes" doc:"Most pushes, and most pulls, in one request."`

	StartTimeout      time.Duration `group:"Time and loss" name:"STEPVAN_START_TIMEOUT" default:"10m" min:"100ms" max:"8760h" doc:"How long the start waits for the rest of the cluster."`
	StopTimeout       time.Duration `name:"STEPVAN_STOP_TIMEOUT" default:"0s" then:"no limit (0s)" min:"0s" max:"8760h" doc:"How long stop waits for the nodes that are alive."`
	HeartbeatInterval time.Duration `name:"PS_HEARTBEAT_INTERVAL" default:"500ms" then:"a third of PS_HEARTBEAT_TIMEOUT when only that is set" min:"0s" max:"8h" shared:"yes" env:"always" doc:"Time between signs of life, in seconds. 0: off. A silent peer is then noticed only when its connection breaks."`
	HeartbeatTimeout  time.Duration `name:"PS_HEARTBEAT_TIMEOUT" default:"1.5s" then:"three times PS_HEARTBEAT_INTERVAL when only that is set" min:"0s" max:"24h" shared:"yes" env:"always" doc:"Seconds until a silent peer is lost. A connection over a socket is lost as well when a message stops in its middle for this long. 0: off."`
	Resend            bool          `name:"PS_RESEND" default:"0" shared:"yes" doc:"1: messages that are not acknowledged are sent again. It has no effect in this version."`
	ResendTimeout     time.Duration `name:"PS_RESEND_TIMEOUT" default:"1s" unit:"ms" min:"1ms" max:"1h" doc:"First wait for an acknowledgement, in milliseconds. It grows with each try, 10 tries at most. It has no effect in this version."`
	DropMsg           int           `name:"PS_DROP_MSG" default:"0" min:"0" max:"100" doc:"For tests: percentage of received messages that are thrown away. It has no effect in this version."`

	Backend    Backend `group:"Accelerator" name:"STEPMESH_BACKEND" misspelt:"STEPMESH_BAKCEND" default:"CPU" values:"CPU GPU DCU klx" doc:"Which accelerator this instance has. With GPU it uses the RDMA device that is nearest to the GPU of STEPMESH_GPU. Tensors say themselves where they are, whatever is set here. This version has no driver for DCU and klx, and refuses them."`
	GPU        int     `name:"STEPMESH_GPU" default:"0" min:"0" max:"65535" doc:"Number of the device. With the CPU backend it is only an index."`
	MemSync    bool    `name:"STEPMESH_MEM_SYNC" default:"1" doc:"1: flags in mapped memory, and not device events, synchronise the accelerator's stream. It has no effect in this version."`
	SplitQPLag bool    `name:"STEPMESH_SPLIT_QP_LAG" default:"0" doc:"1: the queue pairs of a connection are spread over the two ports of a bonded RDMA device, where its driver is mlx5. There must be several: see STEPVAN_RDMA_QPS."`

	Progress          Progress  `group:"Processor and memory" name:"STEPVAN_PROGRESS" default:"auto" values:"auto spin park" doc:"How a waiting call of a worker or a server waits. With auto it polls while its event is likely to come soon and no other thread wants the core, and sleeps otherwise. With spin it always polls. With park it sleeps at once."`
	Register          Register  `name:"STEPVAN_REGISTER" default:"auto" values:"auto explicit" doc:"Where a device reaches only memory that is registered with it: which side registers memory outside of stepvan's own. With auto, stepvan registers the memory of a tensor of Python when the program uses it for the second time, and memory of stepvan_wrap in C. With explicit, only the program does, with register."`
	RegisterBytes     Bytes     `name:"STEPVAN_REGISTER_BYTES" default:"16GiB" min:"1MiB" max:"16TiB" doc:"With STEPVAN_REGISTER=auto: how much memory of the program stepvan keeps registered at once. What was used longest ago makes room. What the program registers itself does not count."`
	Hugepages         Hugepages `name:"STEPVAN_HUGEPAGES" default:"auto" values:"auto on off" doc:"Huge pages for registered memory. With auto it has them where the system has some. With on it always has them, else that is an error. With off it never has them." map:"1=on true=on 0=off false=off"`
	BindCPUCore       bool      `name:"STEPMESH_BIND_CPU_CORE" default:"0" doc:"1: the threads of a worker or server run only on the cores of its device, and its memory comes from their NUMA nodes. In a Go program those are all threads of the process. Where stepvan is a library of another program (Python), it is the background driver; calls that wait run on the thread of their caller. STEPVAN_BIND_CPU_CORE says what happens where the cores are missing."`
	Binding           Binding   `name:"STEPVAN_BIND_CPU_CORE" default:"stepmesh" then:"on with STEPMESH_BIND_CPU_CORE=1 and one of the three settings below" values:"stepmesh auto on off" doc:"Overrules STEPMESH_BIND_CPU_CORE. Some programs set that variable in their code. With auto, threads are bound where this process may use the cores. Elsewhere a warning says that nothing is bound. With on, cores that the process may not use are an error. With off, nothing is bound. With stepmesh, STEPMESH_BIND_CPU_CORE decides, and 1 means auto." map:"1=on true=on 0=off false=off"`
	CPUCoresPerSocket int       `name:"STEPMESH_CPU_CORES_PER_SOCKET" default:"48" min:"1" max:"65536" doc:"Cores of one socket, for STEPMESH_BIND_CPU_CORE. Devices 0 and 1 use the first half of the first socket, 2 and 3 its second half. Devices 4 to 7 use the second socket in the same way."`
	CPUCoresPerGPU    int       `name:"STEPMESH_CPU_CORES_PER_GPU" default:"5" min:"1" max:"65536" doc:"Cores for each device, for STEPMESH_BIND_CPU_CORE."`
	CPUStartOffset    int       `name:"STEPMESH_CPU_START_OFFSET" default:"10" min:"0" max:"65535" doc:"First core that is used in each half of a socket, for STEPMESH_BIND_CPU_CORE. With the defaults, device 0 gets the cores 10 to 14, device 1 15 to 19, device 2 34 to 38."`

	PanicAfter  int  `group:"Rehearsal" name:"STEPVAN_PANIC_AFTER" default:"0" min:"0" max:"1000000000" doc:"For tests of programs: stepvan panics on purpose when this many requests or responses have come to the node. That ends the node as a mistake of the library would: with InternalError in C and Python. 0: never."`
	PanicLocked bool `name:"STEPVAN_PANIC_LOCKED" default:"0" doc:"1: with STEPVAN_PANIC_AFTER, a lock is left locked. The node cannot be closed then, and the process ends with its last words on standard error."`

	LogLevel    LogLevel  `group:"Log and trace" name:"STEPVAN_LOG_LEVEL" alias:"PS_VERBOSE" default:"info" values:"trace debug info warn error off" doc:"Least important line that is written. PS_VERBOSE: 0 info, 1 debug, 2 trace." map:"0=info 1=debug 2=trace 3=trace 4=trace warning=warn"`
	LogFormat   LogFormat `name:"STEPVAN_LOG_FORMAT" default:"auto" values:"auto console json" doc:"auto: console on a terminal, else JSON."`
	TraceEvents int       `name:"STEPVAN_TRACE_EVENTS" default:"65536" min:"0" max:"16777216" doc:"How many requests the node keeps timestamps of, in a ring."`
	TraceFile   string    `name:"STEPVAN_TRACE_FILE" then:"no file" doc:"File for the trace as Chrome/Perfetto JSON, written at stop. Role and rank are added to its name."`
}
