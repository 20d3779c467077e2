package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stepvan/stepvan/cmd/stepvan/internal/rdma"
	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/affinity"
	"github.com/stepvan/stepvan/internal/reach"
	"github.com/stepvan/stepvan/internal/shm"
	"github.com/stepvan/stepvan/internal/sys"
	"github.com/stepvan/stepvan/rdma/device"
)

// System is how the doctor reads the machine. Tests replace its functions.
type System struct {
	reach.Host
	Machine    affinity.Machine
	Listen     func(ctx context.Context, addr string) error       // opens a TCP port and closes it
	Dial       func(ctx context.Context, addr string) error       // connects and closes
	Scheduler  func(ctx context.Context, s config.Settings) error // meets the scheduler, and leaves
	Limit      func(resource int) (soft, hard uint64, err error)
	Memory     func(size int64, huge bool) error // takes shared memory and gives it back
	CPUs       func() int                        // that this process may run on
	Directory  func() (string, error)            // of the sockets of this user; why it cannot be used
	PeerMemory func() error                      // reads memory as of another process
	Library    func() *rdma.Library              // of RDMA
	Inventory  func(l *rdma.Library) (*device.Inventory, error)
	OpenFile   func(name string) error                    // opens a device file and closes it
	Settings   func(name string) (value string, set bool) // the environment of the settings; nil: a program has set them
	// Pair connects two nodes and says what would carry their tensors, and why.
	Pair func(ctx context.Context, s config.Settings) (van, reason string, err error)
}

// unlimited is the value of a limit that is switched off.
const unlimited = unix.RLIM_INFINITY

// ThisMachine reads the machine of this process.
func ThisMachine() *System {
	return &System{
		Host:       reach.ThisHost(),
		Machine:    affinity.Machine{Root: os.DirFS("/")},
		Listen:     listen,
		Dial:       dial,
		Scheduler:  reach.TryScheduler,
		Limit:      limit,
		Memory:     takeMemory,
		CPUs:       runtime.NumCPU,
		Directory:  reach.SocketDir,
		PeerMemory: readMemory,
		Library:    rdma.Load,
		Inventory:  (*rdma.Library).Read,
		OpenFile:   openFile,
		Settings:   config.OfProcess,
		Pair:       reach.TryPair,
	}
}

func listen(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

func dial(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

func openFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func limit(resource int) (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Getrlimit(resource, &l)
	return l.Cur, l.Max, err
}

func takeMemory(size int64, huge bool) error {
	m, err := shm.Create("stepvan-doctor", size, huge)
	if err != nil {
		return err
	}
	return m.Close()
}

// text reads a file of the machine, without surrounding space; "" when it cannot.
func (d *doctor) text(name string) string { return d.sys.Machine.Text(name) }

// number reads a file that begins with a number.
func (d *doctor) number(name string) (int64, bool) { return firstNumber(d.text(name)) }

func firstNumber(text string) (int64, bool) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(words[0], 10, 64)
	return n, err == nil
}

// lineNumber finds the number behind a key at the start of a line, as in /proc/meminfo.
func (d *doctor) lineNumber(name, key string) (int64, bool) {
	for line := range strings.Lines(d.text(name)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return firstNumber(rest)
		}
	}
	return 0, false
}

// readMemory reads its own memory with the call that reads another process's. If the kernel refuses
// it here, it refuses it between processes, too.
func readMemory() error {
	from, to := []byte{7}, make([]byte, 1)
	n, err := sys.ReadProcess(os.Getpid(), to, uint64(uintptr(unsafe.Pointer(&from[0]))))
	if err == nil && (n != 1 || to[0] != from[0]) {
		err = errors.New("process_vm_readv read other bytes")
	}
	return err
}
