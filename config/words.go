package config

// Role is what a process is in the cluster.
type Role string

// The roles of DMLC_ROLE.
const (
	RoleWorker    Role = "worker"
	RoleServer    Role = "server"
	RoleScheduler Role = "scheduler"
	RoleJoint     Role = "joint"
)

// Van names a transport, or the automatic choice.
type Van string

// The values of STEPVAN_VAN.
const (
	VanAuto Van = "auto"
	VanTCP  Van = "tcp"
	VanShm  Van = "shm"
	VanRDMA Van = "rdma"
	VanMem  Van = "mem"
)

// Routing says which servers a push tensor goes to.
type Routing string

// The values of STEPVAN_ROUTING.
const (
	RoutingBroadcast Routing = "broadcast"
	RoutingKey       Routing = "key"
	RoutingNamed     Routing = "named"
)

// Pairing says which server instances a worker instance talks to.
type Pairing string

// The values of STEPVAN_PAIRING.
const (
	PairingInstance Pairing = "instance"
	PairingAll      Pairing = "all"
)

// Batch says what a server's get_batch waits for.
type Batch string

// The values of STEPVAN_BATCH.
const (
	BatchLockstep Batch = "lockstep"
	BatchAny      Batch = "any"
	BatchK        Batch = "k"
)

// Backend is the kind of device whose memory tensors are in.
type Backend string

// The values of STEPMESH_BACKEND.
const (
	BackendCPU Backend = "CPU"
	BackendGPU Backend = "GPU"
	BackendDCU Backend = "DCU" // devices of Hygon
	BackendKLX Backend = "klx" // devices of Kunlunxin
)

// Progress says how a waiting call waits.
type Progress string

// The values of STEPVAN_PROGRESS.
const (
	ProgressAuto Progress = "auto"
	ProgressSpin Progress = "spin"
	ProgressPark Progress = "park"
)

// Hugepages says whether registered memory is backed by huge pages.
type Hugepages string

// The values of STEPVAN_HUGEPAGES.
const (
	HugepagesAuto Hugepages = "auto"
	HugepagesOn   Hugepages = "on"
	HugepagesOff  Hugepages = "off"
)

// Binding says whether threads are bound to the cores of their device, and what missing cores are.
type Binding string

// The values of STEPVAN_BIND_CPU_CORE.
const (
	BindingStepMesh Binding = "stepmesh"
	BindingAuto     Binding = "auto"
	BindingOn       Binding = "on"
	BindingOff      Binding = "off"
)

// LogLevel is the least important kind of line that is logged.
type LogLevel string

// The values of STEPVAN_LOG_LEVEL.
const (
	LogTrace LogLevel = "trace"
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
	LogOff   LogLevel = "off"
)

// LogFormat is the form of log lines.
type LogFormat string

// The values of STEPVAN_LOG_FORMAT.
const (
	LogAuto    LogFormat = "auto"
	LogConsole LogFormat = "console"
	LogJSON    LogFormat = "json"
)
