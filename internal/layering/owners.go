package layering

// owner says which packages alone may use some names of other packages.
type owner struct {
	names []string // import path and name, as in "os.Getenv"; "C" is import "C"
	may   []string // paths of rows
	why   string
}

// owners are the uses that only some packages may have.
var owners = []owner{
	{
		names: []string{"C"},
		may:   []string{"internal/verbs", "device/cuda", "capi"},
		why:   "everything else must build with CGO_ENABLED=0",
	},
	{
		names: []string{
			unix + ".Mmap", unix + ".MmapPtr", unix + ".Mremap", unix + ".MemfdCreate", unix + ".SysvShmAttach",
			"syscall.Mmap",
		},
		may: []string{"internal/shm"},
		why: "the rules for mapped memory (sealed, sized, unmapped once) are kept in one place",
	},
	{
		names: []string{
			unix + ".Syscall", unix + ".Syscall6", unix + ".RawSyscall", unix + ".RawSyscall6", unix + ".SyscallNoError", unix + ".RawSyscallNoError",
			"syscall.Syscall", "syscall.Syscall6", "syscall.RawSyscall", "syscall.RawSyscall6",
			unix + ".Prctl", unix + ".Waitid", unix + ".Wait4", unix + ".SchedSetaffinity", unix + ".SchedGetaffinity",
		},
		may: []string{"internal/sys"},
		why: "memory that the kernel reads and writes is kept in one place",
	},
	{
		names: []string{"os.Getenv", "os.LookupEnv", "os.ExpandEnv", "syscall.Getenv", unix + ".Getenv"},
		may:   []string{"config"},
		why:   "a setting that the table of settings does not know is neither checked nor documented",
	},
}

const unix = "golang.org/x/sys/unix"

// unreachable says what packages must not depend on, at any distance.
type unreachable struct {
	from []string
	to   []string
	why  string
}

var services = []string{"tensor", "internal/wire", "van", "van/tcpvan", "van/shmvan", "van/memvan", "rdma", "internal/link", "postoffice", "worker", "server"}

var unreachables = []unreachable{
	{services, []string{"config"}, "it takes Options; ps maps settings to them"},
	{[]string{"internal/link", "postoffice", "worker", "server"}, []string{"van/tcpvan", "van/shmvan", "van/memvan", "rdma"}, "ps hands vans in"},
	{[]string{"worker"}, []string{"server"}, "worker and server stand beside each other"},
	{[]string{"server"}, []string{"worker"}, "worker and server stand beside each other"},
}
