package config

// Van names a transport, or the automatic choice.
type Van string

// The values of STEPVAN_VAN.
const (
	VanAuto    Van = "auto"
	VanTCP     Van = "tcp"
	VanShm     Van = "shm"
	VanRDMA    Van = "rdma"
	VanShmRDMA Van = "shm+rdma" // shared memory within a machine, and RDMA between machines
	VanMem     Van = "mem"
)

// Carries reports whether tensors may travel over the van called name, as far as STEPVAN_VAN and DMLC_LOCAL say.
func (s *Settings) Carries(name Van) bool {
	switch s.Van {
	case VanAuto:
		return name != VanMem && (name != VanRDMA || !s.Local)
	case VanShmRDMA:
		return name == VanShm || name == VanRDMA
	}
	return name == s.Van
}

// BatchWord is the policy of get_batch as STEPVAN_BATCH writes it. [Settings.Policy] joins it with STEPVAN_BATCH_MIN.
type BatchWord string

// The values of STEPVAN_BATCH.
const (
	BatchLockstep BatchWord = "lockstep"
	BatchAny      BatchWord = "any"
	BatchK        BatchWord = "k"
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

// Copier is the side that copies a response, or the automatic choice.
type Copier string

// The values of STEPVAN_RESPONSE_COPY.
const (
	CopierAuto   Copier = "auto"
	CopierServer Copier = "server"
	CopierWorker Copier = "worker"
)

// Progress says how a waiting call waits.
type Progress string

// The values of STEPVAN_PROGRESS.
const (
	ProgressAuto Progress = "auto"
	ProgressSpin Progress = "spin"
	ProgressPark Progress = "park"
)

// Register says whether stepvan registers memory that the program did not register.
type Register string

// The values of STEPVAN_REGISTER.
const (
	RegisterAuto     Register = "auto"
	RegisterExplicit Register = "explicit"
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
